"""Starting a system's producer and worker, each in a session of its own."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from benchmarks.processes import end_session
from benchmarks.queue.systems import PROGRAMS, System

_PRODUCER_SECONDS = 600


def _environment(system: System, url: str, extra: Mapping[str, str]) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(PROGRAMS), os.environ.get("PYTHONPATH")])),
        "PYTHONUNBUFFERED": "1",
        "BENCH_REDIS_URL": url,
        "BENCH_SLOTS": str(system.slots),
        **extra,
    }


def produce(system: System, url: str, jobs: int) -> dict[str, float]:
    """Enqueue jobs in one process; returns its `seconds` and `cpu_seconds`.

    Raises RuntimeError with the end of what it said.
    """
    done = subprocess.run(
        system.producer_command(jobs),
        env=_environment(system, url, {}),
        cwd=PROGRAMS,
        capture_output=True,
        text=True,
        timeout=_PRODUCER_SECONDS,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{system.name}: producer failed:\n{done.stderr[-2000:]}")
    measured: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return measured


@contextmanager
def worker(
    system: System, url: str, marks: Path, *, hold_seconds: float = 0
) -> Iterator[subprocess.Popen[bytes]]:
    """One worker; whatever is left of it is killed at the end. Its log lies beside the marks."""
    extra = {"BENCH_MARKS": str(marks), "BENCH_HOLD_SECONDS": str(hold_seconds)}
    with marks.with_suffix(".log").open("ab") as log:
        process = subprocess.Popen(
            system.worker_command(),
            env=_environment(system, url, extra),
            cwd=PROGRAMS,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        end_session(process.pid)
        process.wait()
