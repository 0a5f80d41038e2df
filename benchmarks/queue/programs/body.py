"""The job that every system runs, and how it says that it ran: standard library only.

The body costs every system the same: one 8-byte write to a file opened for appending, which is
atomic across threads and processes, so that the harness can count from outside and nothing of it
touches Redis. In a recovery run (`BENCH_HOLD_SECONDS`) the body also notes its start and sleeps.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

URL = os.environ.get("BENCH_REDIS_URL", "redis://127.0.0.1:6379/0")
SLOTS = int(os.environ.get("BENCH_SLOTS", "32"))
HOLD_SECONDS = float(os.environ.get("BENCH_HOLD_SECONDS", "0"))
CHUNK = 100
"""How many enqueues go together where a library has only single ones."""

_marks = os.open(
    os.environ.get("BENCH_MARKS", os.devnull), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600
)


def payload(number: int) -> dict[str, Any]:
    """The one argument of job `number`: a small chat request, about 110 bytes as JSON."""
    return {
        "model": "gpt-4.1-mini",
        "seed": number,
        "max_tokens": 16,
        "messages": [{"role": "user", "content": "Say hello."}],
    }


def _mark(kind: str, job: dict[str, Any]) -> None:
    os.write(_marks, f"{kind}{job['seed']:06d}\n".encode())


async def job(argument: dict[str, Any]) -> None:
    """For libraries that run coroutines."""
    if HOLD_SECONDS:
        _mark("s", argument)
        await asyncio.sleep(HOLD_SECONDS)
    _mark("e", argument)


def job_sync(argument: dict[str, Any]) -> None:
    """For libraries that run plain functions."""
    if HOLD_SECONDS:
        _mark("s", argument)
        time.sleep(HOLD_SECONDS)
    _mark("e", argument)


def wanted() -> int:
    """Number of jobs, from `program.py produce JOBS`."""
    return int(sys.argv[2])


class Clock:
    """Wall and CPU time of the enqueues alone: imports and the first connection are done before."""

    def __enter__(self) -> Clock:
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        wall, cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu
        if kind is None:
            print(json.dumps({"seconds": wall, "cpu_seconds": cpu}))


async def produce_async(
    one: Callable[[dict[str, Any]], Awaitable[object]], jobs: Sequence[dict[str, Any]]
) -> None:
    """Single enqueues, CHUNK at once."""
    with Clock():
        for start in range(0, len(jobs), CHUNK):
            await asyncio.gather(*(one(job) for job in jobs[start : start + CHUNK]))
