"""The end of worker processes: real signals, real sockets, nothing lost and nothing twice."""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from support.workerbench import WorkerBench

BOTH = pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda n: n.name)


async def test_jobs_run_and_are_booked(bench: WorkerBench) -> None:
    """P25: the provider's calls are the recorded attempts."""
    await bench.worker()
    ids = await bench.enqueue(12)
    await bench.until_states(succeeded=12)
    assert sorted(request.job for request in bench.provider.received) == sorted(ids)
    ledger = await bench.ledger()
    assert sorted(entry["job"] for entry in ledger) == sorted(ids)
    for job in ids:
        (attempt,) = await bench.attempts(job)
        assert attempt["class"] == "SUCCESS"
        assert (attempt["input_tokens"], attempt["output_tokens"]) == (10, 5)
        assert 0 <= attempt["finished"] - attempt["started"] < 5
        assert attempt["nano_usd"] == 4500


@BOTH
async def test_a_running_call_finishes_and_is_settled(
    bench: WorkerBench, number: signal.Signals
) -> None:
    """Q2, Q3, Q4: settled before the exit, one run, one entry, nothing claimed after the signal."""
    bench.provider.delay_seconds = 1.5
    worker = await bench.worker(slots=2)
    await bench.enqueue(5)
    await bench.until_sent(2)
    sent = worker.send(number)
    assert await worker.ended() == 0
    assert 0.3 < time.monotonic() - sent < 4
    assert await bench.jobs.states() == {"succeeded": 2, "ready": 3}
    assert len(bench.provider.received) == 2
    assert len(await bench.ledger()) == 2
    snapshot = await bench.jobs.store.snapshot(bench.jobs.queue, horizon_seconds=1)
    assert snapshot.queues[0].grants == 2
    assert snapshot.workers == ()


@contextmanager
def black_hole() -> Iterator[int]:
    """A port to which connecting hangs: its queue of connections is full."""
    with ExitStack() as stack:
        hole = stack.enter_context(socket.socket())
        hole.bind(("127.0.0.1", 0))
        hole.listen(0)
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(hole.getsockname())
        yield hole.getsockname()[1]


async def test_a_job_that_was_not_sent_runs_elsewhere_at_once(bench: WorkerBench) -> None:
    """Q3: claimed, not yet sent: released, no attempt used, the next worker has it in < 1 s."""
    other = await bench.worker(slots=1)
    bench.provider.gate.clear()
    await bench.enqueue()
    await bench.until_sent(1)
    with black_hole() as port:
        hung = await bench.worker(slots=1, base_url=f"http://127.0.0.1:{port}/v1")
        (job,) = await bench.enqueue()
        await bench.until_states(sent=1, leased=1)
        bench.provider.gate.set()
        await bench.until_states(succeeded=1, leased=1)
        hung.send(signal.SIGTERM)
        assert await bench.until_states(succeeded=2) < 1.0
        assert await hung.ended() == 0
    assert [attempt["class"] for attempt in await bench.attempts(job)] == ["SUCCESS"]
    assert (await bench.jobs.store.job(job)).attempts_used == 1
    assert other.running


async def test_a_call_beyond_the_drain_is_booked_as_unknown(bench: WorkerBench) -> None:
    """A call that outlives the drain may be billed: it follows its policy, and the worker says so."""
    bench.provider.gate.clear()
    worker = await bench.worker(slots=1, drain_seconds=1)
    (job,) = await bench.enqueue(model="gpt-4o-mini", worst_nano_usd=10**9)
    await bench.until_sent(1)
    worker.send(signal.SIGTERM)
    assert await worker.ended() == 0
    assert await bench.jobs.states() == {"review": 1}
    (attempt,) = await bench.attempts(job)
    assert (attempt["class"], attempt["code"]) == ("UNKNOWN", "drain_overdue")
    assert attempt["estimated"] is True
    assert attempt["nano_usd"] > 0
    assert worker.events("drain-overdue")


async def test_a_settle_waits_for_the_store_beyond_the_drain(bench: WorkerBench) -> None:
    """Q2: Redis away during the drain: the result is kept and settled when Redis is back."""
    bench.provider.delay_seconds = 1.0
    worker = await bench.worker(slots=1, drain_seconds=2)
    (job,) = await bench.enqueue()
    await bench.until_sent(1)
    await bench.server.stop()
    worker.send(signal.SIGTERM)
    await asyncio.sleep(3.5)
    assert worker.running
    await bench.server.start()
    assert await worker.ended() == 0
    await bench.until_states(succeeded=1)
    assert len(await bench.attempts(job)) == 1
    assert len(bench.provider.received) == 1


async def test_a_second_interrupt_means_now(bench: WorkerBench) -> None:
    bench.provider.gate.clear()
    worker = await bench.worker(slots=1)
    await bench.enqueue()
    await bench.until_sent(1)
    worker.send(signal.SIGINT)
    await bench.until(lambda: bool(worker.events("draining")))
    worker.send(signal.SIGTERM)
    with pytest.raises(TimeoutError):
        await worker.ended(seconds=0.5)
    worker.send(signal.SIGINT)
    assert await worker.ended(seconds=2) == 130


async def test_a_signal_before_anything_runs(bench: WorkerBench) -> None:
    """Q4: from the first moments on the end is orderly; Redis need not even be there."""
    await bench.server.stop()
    worker = await bench.worker(started=False)
    await bench.until(lambda: bool(worker.events("store-not-usable")))
    worker.send(signal.SIGTERM)
    assert await worker.ended(seconds=3) == 0
