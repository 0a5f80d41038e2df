"""The worked example: 600 jobs at once, 60 requests a minute, calls of 8 s, one slot a worker."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from llmqueue.client import Client, JobSpec
from support.fakeprovider import FakeProviderProcess
from support.localup import LocalUp, born

JOBS = 600
WORKERS = 11
FLOOR_SECONDS = 610.0
"""600 calls at 60 in each 61 s, the shortest window that is safe."""
MOST_POD_SECONDS = 1.65
"""For each second of a call."""
_LOOK_SECONDS = 0.2
MANIFEST = """
apiVersion: llmqueue.dev/v1alpha1
kind: LLMQueue
metadata: {{name: example}}
spec:
  provider: {{type: openai-compatible, baseURL: "{url}/v1"}}
  limits: {{requestsPerMinute: 60}}
  scaling: {{slotsPerWorker: 1, expectedCallSeconds: 8}}
"""


@dataclass
class Example:
    """The queue while `up` serves it."""

    machine: LocalUp
    up: subprocess.Popen[bytes]
    fake: FakeProviderProcess

    async def burst(self) -> None:
        messages = [{"role": "user", "content": "hi"}]
        spec = JobSpec(payload={"model": "m", "max_tokens": 5, "messages": messages})
        async with self.machine.store() as store:
            await Client(store).enqueue_many("example", [spec] * JOBS)

    async def pod_seconds(self) -> float:
        """Time that worker processes lived, from now until the last job has succeeded."""
        lived, last = 0.0, time.monotonic()
        async with self.machine.store() as store:
            while (await store.queue_status("default/example"))["states"]["succeeded"] < JOBS:
                await asyncio.sleep(_LOOK_SECONDS)
                now = time.monotonic()
                lived += len(self.machine.workers(self.up)) * (now - last)
                last = now
        return lived


@asynccontextmanager
async def example(folder: Path, latency: str) -> AsyncIterator[Example]:
    async with FakeProviderProcess(rpm=60, latency=latency) as fake, LocalUp(folder) as machine:
        machine.manifest.write_text(MANIFEST.format(url=fake.url))
        yield Example(machine, await machine.up("--json"), fake)


async def test_workers_are_asked_for_at_once(tmp_path: Path) -> None:
    """S29, S41: the first worker is asked for within 1 s of the burst, all within 2 ticks."""
    async with example(tmp_path, "8") as run:
        began = time.clock_gettime(time.CLOCK_BOOTTIME)
        await run.burst()
        await run.machine.until(lambda: len(run.machine.workers(run.up)) == WORKERS)
        waits = sorted(born(pid) - began for pid in run.machine.workers(run.up))
        print(f"first worker after {waits[0]:.2f} s, the last one after {waits[-1]:.2f} s")
        assert waits[0] <= 1.0
        assert waits[-1] <= 2.0
        await run.machine.until(lambda: run.machine.events("workers"))
        (asked,) = run.machine.events("workers")
        assert (asked["after"], asked["bound_by"]) == (WORKERS, "RequestsPerMinute")


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("latency", "least", "most"),
    [
        pytest.param("8", WORKERS, WORKERS, id="constant"),
        pytest.param("lognormal:8,0.5", 10, 13, id="lognormal"),
    ],
)
async def test_the_burst_is_worked_off(tmp_path: Path, latency: str, least: int, most: int) -> None:
    """S41: close to the least possible time, with as many workers as that takes."""
    async with example(tmp_path, latency) as run:
        began = time.time()
        await run.burst()
        pod_seconds = await run.pod_seconds()
        stats, calls = await run.fake.stats(), await run.fake.calls()
        targets = run.machine.events("workers")
    ends = sorted(call["end"] - began for call in calls)
    useful = sum(call["end"] - call["start"] for call in calls)
    print(
        f"98 % after {ends[JOBS * 98 // 100 - 1]:.0f} s, all after {ends[-1]:.0f} s;"
        f" {pod_seconds / useful:.2f} pod-seconds for each useful one;"
        f" workers {[event['after'] for event in targets]}"
    )
    assert (stats["answered_429"], stats["calls"], stats["billed_twice"]) == (0, JOBS, 0)
    assert stats["worst_60s"] <= stats["limit"]
    assert ends[JOBS * 98 // 100 - 1] <= 1.05 * FLOOR_SECONDS
    assert pod_seconds <= MOST_POD_SECONDS * useful
    limited = [event["after"] for event in targets if event["time"] < began + FLOOR_SECONDS]
    assert least <= min(limited) <= max(limited) <= most
