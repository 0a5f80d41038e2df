"""Recycling in place, seen from outside: the container never ends, and probes find it each time."""

from __future__ import annotations

import asyncio
import signal
import urllib.error
import urllib.request

import pytest

from support.valkey import free_port
from support.workerbench import WorkerBench, metric

RECYCLED = 20


def fetch(url: str) -> str:
    """What a probe gets; "" where nobody answers."""
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return str(answer.read().decode())
    except (OSError, urllib.error.URLError):
        return ""


@pytest.mark.timeout(300)
async def test_twenty_images_one_process(bench: WorkerBench) -> None:
    """Recycling after each job, twenty times in a row: same pid, each job once, none given back."""
    port = free_port()
    worker = await bench.worker(slots=2, max_jobs=1, health_port=port)
    pid = worker.pid
    ids = await bench.enqueue(RECYCLED)
    await bench.until_states(succeeded=RECYCLED, seconds=240)
    assert sorted(request.job for request in bench.provider.received) == sorted(ids)
    starts = worker.events("started")
    assert len(starts) >= RECYCLED
    assert {start["pid"] for start in starts} == {pid}
    assert len({start["name"] for start in starts}) == len(starts)
    await bench.until(lambda: len(worker.events("started")) == RECYCLED + 1)

    url = f"http://127.0.0.1:{port}"

    async def ready() -> bool:
        return await asyncio.to_thread(fetch, f"{url}/readyz") == "ok\n"

    await bench.until(ready)
    assert await asyncio.to_thread(fetch, f"{url}/livez") == "ok\n"
    text = await asyncio.to_thread(fetch, f"{url}/metrics")
    assert metric(text, "llmqueue_worker_slots") == 2
    worker.send(signal.SIGTERM)
    assert await worker.ended() == 0
    assert (await bench.jobs.store.snapshot(bench.jobs.queue, horizon_seconds=1)).workers == ()
    assert worker.other_output() == ""


async def test_alive_without_redis_and_not_ready(bench: WorkerBench) -> None:
    """Liveness is the event loop only: with Redis away a worker is not killed for it."""
    await bench.server.stop()
    port = free_port()
    worker = await bench.worker(started=False, health_port=port)
    url = f"http://127.0.0.1:{port}"

    async def alive() -> bool:
        return await asyncio.to_thread(fetch, f"{url}/livez") == "ok\n"

    await bench.until(alive)
    assert await asyncio.to_thread(fetch, f"{url}/readyz") == ""
    await bench.server.start()

    async def ready() -> bool:
        return await asyncio.to_thread(fetch, f"{url}/readyz") == "ok\n"

    await bench.until(ready)
    await bench.server.stop()
    assert await asyncio.to_thread(fetch, f"{url}/readyz") == "ok\n"
    assert worker.running


async def test_a_signal_between_two_images(bench: WorkerBench) -> None:
    """Q4: a SIGTERM that falls into the re-exec or the start of the new image: exit 0, none lost."""
    for delay_seconds in (0.0, 0.05, 0.2, 0.6):
        bench.provider.received.clear()
        worker = await bench.worker(slots=1, max_jobs=1)
        await bench.enqueue()
        await bench.until(lambda worker=worker: bool(worker.events("ended")))
        await asyncio.sleep(delay_seconds)
        worker.send(signal.SIGTERM)
        assert await worker.ended() == 0
    assert await bench.jobs.states() == {"succeeded": 4}


async def test_a_port_that_is_taken_is_a_clear_error(bench: WorkerBench) -> None:
    port = int(bench.provider.url.rsplit(":", 1)[1].split("/")[0])
    worker = await bench.worker(started=False, health_port=port)
    assert await worker.ended() == 2
    (line,) = worker.events("settings-unusable")
    assert str(port) in line["message"]
