"""Drain and recycling on a virtual clock: every point at which the end can come."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
import structlog.testing

from llmqueue.errors import StoreUnavailable, UnknownQueue
from llmqueue.states import JobState, OutcomeClass, RefusalReason
from llmqueue_worker.recycle import Recycling, resident_mib
from llmqueue_worker.worker import Ending
from support.scriptedrunner import SUCCESS, settings, start, working
from support.virtualtime import now, run_virtually, settle_down


def test_running_calls_finish_and_nothing_is_claimed() -> None:
    """Q2, Q4, Q5: leases are renewed until the last settle, which comes before the end."""

    async def scenario() -> None:
        async with working(slots=2) as bench:
            bench.store.add(4)
            bench.runner.seconds = 60.0
            start(bench)
            await asyncio.sleep(1)
            claims = len(bench.store.named("claim"))
            bench.worker.stop()
            assert await bench.ended() is Ending.STOPPED
            assert now() == pytest.approx(60)
            assert len(bench.store.named("claim")) == claims
            assert len(bench.store.settled) == 2
            assert len([t for t in bench.store.times("beat") if t > 1]) >= 19
            assert [name for _, name, _ in bench.store.calls[-2:]] == ["settle", "leave"]
            assert bench.store.left == [bench.worker.name]
            assert bench.runner.closed

    run_virtually(scenario())


def test_unsent_jobs_go_back_at_once() -> None:
    """Q3: claimed and still connecting: released, no outcome, no attempt."""

    async def scenario() -> None:
        async with working(slots=2) as bench:
            bench.runner.connect_seconds = 30.0
            bench.store.add(2)
            start(bench)
            await asyncio.sleep(2)
            bench.worker.stop()
            assert await bench.ended() is Ending.STOPPED
            assert now() == pytest.approx(2)
            assert sorted(bench.store.released) == ["job-1", "job-2"]
            assert bench.store.settled == []
            assert bench.runner.left == []

    run_virtually(scenario())


def test_jobs_of_a_claim_under_way_go_back() -> None:
    """Q4: the signal comes while a claim is on its way: its jobs are not started."""

    async def scenario() -> None:
        async with working() as bench:
            bench.store.gates["claim"] = asyncio.Event()
            bench.store.add(2)
            start(bench)
            await asyncio.sleep(1)
            bench.worker.stop()
            await asyncio.sleep(1)
            bench.store.gates["claim"].set()
            assert await bench.ended() is Ending.STOPPED
            assert sorted(bench.store.released) == ["job-1", "job-2"]
            assert bench.runner.started == []
            assert len(bench.store.named("claim")) == 1

    run_virtually(scenario())


@pytest.mark.parametrize("lost_reply", [False, True], ids=["answered", "reply lost"])
def test_the_end_comes_while_the_store_is_asked(lost_reply: bool) -> None:
    """Q3: the store may say ok to a request that will never leave: the job goes back all the same."""

    async def scenario() -> None:
        async with working() as bench:
            bench.store.gates["mark_sent"] = asyncio.Event()
            if lost_reply:
                bench.store.after["mark_sent"].append(StoreUnavailable("cut"))
            bench.store.gates["release"] = asyncio.Event()
            bench.store.add(1)
            start(bench)
            await asyncio.sleep(1)
            bench.worker.stop()
            await settle_down()
            bench.store.gates["mark_sent"].set()
            await settle_down()
            assert bench.store.states == {"job-1": JobState.SENT}
            bench.store.gates["release"].set()
            await bench.ended()
            assert bench.store.states == {"job-1": JobState.READY}
            assert (bench.runner.left, bench.store.settled) == ([], [])

    run_virtually(scenario())


def test_the_end_comes_in_the_middle_of_batches() -> None:
    """Some settles are on their way, some wait for the next batch, some calls still run."""

    async def scenario() -> None:
        async with working(slots=40) as bench:
            bench.store.add(40)
            start(bench)
            await settle_down()
            bench.store.gates["settle"] = asyncio.Event()
            bench.store.faults["settle"].append(StoreUnavailable("cut"))
            await asyncio.sleep(1.5)
            bench.worker.stop()
            await asyncio.sleep(5)
            bench.store.gates["settle"].set()
            await bench.ended()
            assert len(bench.store.settled) == 40
            assert {item.outcome for item in bench.store.settled} == {SUCCESS}
            assert len({item.fence for item in bench.store.settled}) == 40

    run_virtually(scenario())


def test_a_call_that_outlives_the_drain() -> None:
    """Closed and settled as unknown, said loudly; the settle itself is repeated for as long as it
    takes."""

    async def scenario() -> None:
        async with working(drain_seconds=20) as bench:
            bench.runner.seconds = 500.0
            bench.store.add(1)
            start(bench)
            await asyncio.sleep(1)
            bench.store.faults["settle"].extend([StoreUnavailable("gone")] * 50)
            with structlog.testing.capture_logs() as logs:
                bench.worker.stop()
                assert await bench.ended() is Ending.STOPPED
            (settled,) = bench.store.settled
            assert settled.outcome.kind is OutcomeClass.UNKNOWN
            assert settled.entry is not None
            assert settled.entry["estimated"] is True
            assert now() > 21
            assert [line["event"] for line in logs].count("drain-overdue") == 1

    run_virtually(scenario())


def test_what_would_only_go_back_is_not_waited_for_beyond_the_drain() -> None:
    """With Redis away for good and nothing paid for at stake, the process ends."""

    async def scenario() -> None:
        async with working(drain_seconds=20) as bench:
            bench.runner.connect_seconds = 100.0
            bench.store.add(1)
            start(bench)
            await asyncio.sleep(1)
            bench.store.faults["release"].extend([StoreUnavailable("gone")] * 10_000)
            bench.store.faults["leave"].append(StoreUnavailable("gone"))
            bench.worker.stop()
            await bench.ended()
            assert 21 <= now() < 25

    run_virtually(scenario())


def test_a_worker_of_a_removed_queue_leaves_in_order() -> None:
    async def scenario() -> None:
        async with working() as bench:
            start(bench)
            await asyncio.sleep(1)
            bench.store.faults["leave"].append(UnknownQueue("no queue"))
            bench.worker.stop()
            assert await bench.ended() is Ending.STOPPED
            assert bench.runner.closed

    run_virtually(scenario())


def test_a_leave_that_hangs_is_not_waited_for() -> None:
    async def scenario() -> None:
        async with working() as bench:
            start(bench)
            await asyncio.sleep(1)
            bench.store.gates["leave"] = asyncio.Event()
            bench.worker.stop()
            await bench.ended()
            assert now() == pytest.approx(3)

    run_virtually(scenario())


def test_a_refusal_during_the_drain_is_no_release() -> None:
    async def scenario() -> None:
        async with working() as bench:
            bench.store.refuse_sent = RefusalReason.DRAINING
            bench.store.add(1)
            start(bench)
            await settle_down()
            bench.worker.stop()
            await bench.ended()
            assert bench.store.named("release") == []

    run_virtually(scenario())


@pytest.mark.parametrize("fails", [False, True], ids=["ends", "fails"])
def test_a_wait_for_work_that_cannot_be_cancelled_holds_up_nothing(fails: bool) -> None:
    """redis-py swallows a cancellation that falls into its connecting."""

    async def scenario() -> None:
        async with working() as bench:

            async def deaf(queue: str, timeout_seconds: float) -> bool:
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(100)
                await asyncio.sleep(50)
                if fails:
                    raise StoreUnavailable("at last")
                return False

            bench.store.wait_for_work = deaf  # type: ignore[method-assign]
            start(bench)
            await asyncio.sleep(1)
            bench.worker.stop()
            await bench.ended()
            assert now() == pytest.approx(1)
            await asyncio.sleep(100)

    run_virtually(scenario())


def test_stopped_before_the_store_has_answered() -> None:
    async def scenario() -> None:
        async with working() as bench:
            bench.store.faults["beat"].extend([StoreUnavailable("gone")] * 1000)
            start(bench)
            await asyncio.sleep(10)
            bench.worker.stop()
            await bench.ended()
            assert bench.store.named("claim") == []
            assert now() == pytest.approx(10)

    run_virtually(scenario())


# ---------------------------------------------------------------- recycling


@pytest.mark.parametrize(("slots", "jobs"), [(1, 1), (4, 7), (8, 3)])
def test_after_exactly_so_many_jobs(slots: int, jobs: int) -> None:
    async def scenario() -> None:
        async with working(slots=slots, max_jobs=jobs) as bench:
            bench.store.add(20)
            start(bench)
            assert await bench.ended() is Ending.RECYCLED
            assert len(bench.store.settled) == len(bench.runner.started) == jobs
            assert bench.store.released == []
            assert bench.worker.recycling.reason == "max-jobs"

    run_virtually(scenario())


def test_after_so_long_even_when_idle() -> None:
    async def scenario() -> None:
        async with working(max_seconds=100) as bench:
            start(bench)
            assert await bench.ended() is Ending.RECYCLED
            assert 100 <= now() <= 106

    run_virtually(scenario())


def test_after_so_much_memory() -> None:
    async def scenario() -> None:
        async with working(max_memory_mib=200) as bench:
            bench.store.add(1)
            bench.memory_mib = 150
            start(bench)
            await asyncio.sleep(60)
            bench.memory_mib = 201
            assert await bench.ended() is Ending.RECYCLED
            assert now() < 70
            assert bench.worker.recycling.reason == "max-memory"

    run_virtually(scenario())


def test_an_image_that_is_large_from_its_start_does_not_spin() -> None:
    async def scenario() -> None:
        async with working(max_memory_mib=200) as bench:
            bench.memory_mib = 500
            start(bench)
            await asyncio.sleep(600)
            assert bench.task is not None
            assert not bench.task.done()

    run_virtually(scenario())


def test_a_signal_during_recycling_is_an_end() -> None:
    async def scenario() -> None:
        async with working(max_jobs=1) as bench:
            bench.runner.seconds = 50.0
            bench.store.add(1)
            start(bench)
            await asyncio.sleep(10)
            bench.worker.stop()
            assert await bench.ended() is Ending.STOPPED
            assert len(bench.store.settled) == 1

    run_virtually(scenario())


def test_without_bounds_it_never_ends() -> None:
    recycling = Recycling(settings(max_memory_mib=0), clock=lambda: 1e9, memory=lambda: 1e9)
    for _ in range(1000):
        recycling.started()
    assert recycling.quota() > 1000
    assert recycling.reason is None


def test_memory_is_measured() -> None:
    before = resident_mib()
    ballast = bytearray(64 * 2**20)
    assert 50 < resident_mib() - before < 90
    del ballast
