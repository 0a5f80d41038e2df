"""Ends of handler runs that come from outside: time, drains, cancels, lost leases, a store that is away."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from llmqueue.app import Context
from llmqueue.errors import LlmqueueError, StoreUnavailable, UnknownQueue
from llmqueue.states import OutcomeClass
from llmqueue.store.port import AcquireReply
from support.scriptedhandlers import HandlerBench, ask, play, works
from support.virtualtime import settle_down

# ---------------------------------------------------------------- time


def test_own_time_is_bounded() -> None:
    async def scenario(bench: HandlerBench) -> None:
        async def handler(_ctx: Context) -> None:
            await asyncio.sleep(1000)

        works(bench, handler)
        await settle_down()
        assert bench.worker.in_flight.longest_remaining(0) == pytest.approx(60, abs=1)
        await asyncio.sleep(100)
        assert bench.store.times("settle") == pytest.approx([60])
        assert bench.outcome().message == "the attempt took longer than timeouts.attemptSeconds"
        assert (bench.outcome().kind, bench.outcome().sent) == (OutcomeClass.TRANSIENT, False)

    play(scenario, attempt_seconds=60)


def test_waiting_for_the_budget_is_not_own_time() -> None:
    async def scenario(bench: HandlerBench) -> None:
        bench.store.acquires.extend([AcquireReply("wait", 25)] * 6)

        async def handler(ctx: Context) -> str:
            await asyncio.sleep(30)
            found = await ask(ctx, "x")
            await asyncio.sleep(20)
            return found

        works(bench, handler)
        await asyncio.sleep(130)
        assert bench.store.settled == []
        assert bench.worker.in_flight.longest_remaining(130) == pytest.approx(30, abs=25)
        await asyncio.sleep(200)
        assert bench.outcome().kind is OutcomeClass.SUCCESS

    play(scenario, attempt_seconds=60)


def test_a_call_may_take_what_is_left_of_the_attempt() -> None:
    async def scenario(bench: HandlerBench) -> None:
        bench.calls.seconds = 1000

        async def handler(ctx: Context) -> str:
            await asyncio.sleep(40)
            return await ask(ctx, "x")

        works(bench, handler)
        await asyncio.sleep(200)
        ((_, _, seconds),) = bench.calls.made
        assert seconds == pytest.approx(20, abs=0.1)
        assert bench.outcome().kind is OutcomeClass.UNKNOWN
        assert bench.store.times("settle") == pytest.approx([60], abs=0.1)

    play(scenario, attempt_seconds=60, request_seconds=30)


def test_a_job_may_ask_for_less_time() -> None:
    async def scenario(bench: HandlerBench) -> None:
        assert bench.app is not None

        @bench.app.handler("work")
        async def work(ctx: Context) -> None:
            await asyncio.sleep(1000)

        bench.run("work", fields={"timeout_seconds": 5.0})
        await asyncio.sleep(100)
        assert bench.store.times("settle") == pytest.approx([5])

    play(scenario, attempt_seconds=60)


# ---------------------------------------------------------------- ends from outside


def test_a_drain_gives_back_who_waits_for_the_budget() -> None:
    async def scenario(bench: HandlerBench) -> None:
        bench.store.acquires.extend([AcquireReply("wait", 20)] * 100)

        async def handler(ctx: Context) -> str:
            return await ask(ctx, "x")

        job = works(bench, handler)
        await asyncio.sleep(5)
        bench.worker.stop()
        await bench.ended()
        assert (bench.store.released, bench.store.settled) == ([job], [])

    play(scenario)


def test_a_drain_ends_at_the_next_call() -> None:
    async def scenario(bench: HandlerBench) -> None:
        async def handler(ctx: Context) -> str:
            await ask(ctx, "first")
            return await ask(ctx, "second")

        job = works(bench, handler)
        await asyncio.sleep(0.5)
        bench.worker.stop()
        await bench.ended()
        assert (bench.texts, bench.store.released) == (["first"], [job])
        assert len(bench.store.finished) == 1

    play(scenario)


def test_a_drain_mark_in_the_store_gives_the_job_back() -> None:
    async def scenario(bench: HandlerBench) -> None:
        bench.store.acquires.append(AcquireReply("draining"))

        async def handler(ctx: Context) -> str:
            return await ask(ctx, "x")

        job = works(bench, handler)
        await asyncio.sleep(0.5)
        assert bench.store.released == [job]

    play(scenario)


def test_own_code_goes_on_until_the_end_of_the_drain() -> None:
    async def scenario(bench: HandlerBench) -> None:
        async def handler(_ctx: Context) -> str:
            await asyncio.sleep(20)
            return "in time"

        works(bench, handler)
        await asyncio.sleep(1)
        bench.worker.stop()
        await bench.ended()
        assert bench.outcome().kind is OutcomeClass.SUCCESS

    play(scenario)


def test_a_drain_does_not_lose_a_result_that_is_there() -> None:
    async def scenario(bench: HandlerBench) -> None:
        bench.store.gates["progress"] = asyncio.Event()

        async def handler(ctx: Context) -> str:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ctx.progress(0.5), 0.1)
            await ctx.progress(1.0)
            return "done"

        works(bench, handler)
        await asyncio.sleep(1)
        bench.worker.stop()
        await asyncio.sleep(1)
        bench.store.gates["progress"].set()
        await bench.ended()
        assert bench.outcome().kind is OutcomeClass.SUCCESS
        assert bench.store.progressed[-1][1] == 1.0

    play(scenario)


def test_own_code_that_outlasts_the_drain_is_given_back() -> None:
    async def scenario(bench: HandlerBench) -> None:
        async def handler(_ctx: Context) -> str:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(2000)
            return "swallowed, and still given back"

        job = works(bench, handler)
        await asyncio.sleep(1)
        bench.worker.stop()
        await bench.ended()
        assert (bench.store.released, bench.store.settled) == ([job], [])

    play(scenario, attempt_seconds=5000)


def test_the_end_of_a_drain_waits_for_a_record() -> None:
    """What a call came to is told, though the drain's time is over."""

    async def scenario(bench: HandlerBench) -> None:
        bench.store.gates["finish_calls"] = asyncio.Event()

        async def handler(ctx: Context) -> str:
            await ask(ctx, "x")
            return "done"

        job = works(bench, handler)
        await asyncio.sleep(0.5)
        bench.worker.stop()
        await asyncio.sleep(20)
        bench.store.gates["finish_calls"].set()
        await bench.ended()
        assert len(bench.store.finished) == 1
        assert (bench.store.released, bench.store.settled) == ([job], [])

    play(scenario, drain_seconds=10)


@pytest.mark.parametrize("swallows", [False, True], ids=["let through", "swallowed"])
def test_a_cancel_closes_the_call(swallows: bool) -> None:
    """Q48"""

    async def scenario(bench: HandlerBench) -> None:
        bench.calls.seconds = 100

        async def handler(ctx: Context) -> str:
            while True:
                try:
                    await ask(ctx, "x")
                except BaseException:
                    if not swallows:
                        raise
                    return "swallowed"

        job = works(bench, handler)
        await asyncio.sleep(1)
        bench.store.cancelled.add(job)
        await asyncio.sleep(5)
        assert (bench.calls.closed, bench.outcome().kind) == (["x"], OutcomeClass.CANCELLED)
        assert bench.settlement().entry is not None

    play(scenario)


def test_a_cancel_closes_a_call_in_another_task() -> None:
    async def scenario(bench: HandlerBench) -> None:
        bench.calls.seconds = 100

        async def handler(ctx: Context) -> None:
            keep.append(asyncio.create_task(ask(ctx, "beside")))
            await asyncio.sleep(1000)

        keep: list[asyncio.Task[str]] = []
        job = works(bench, handler)
        await asyncio.sleep(1)
        bench.store.cancelled.add(job)
        await asyncio.sleep(5)
        assert (bench.calls.closed, bench.outcome().kind) == (["beside"], OutcomeClass.CANCELLED)
        await asyncio.gather(*keep, return_exceptions=True)

    play(scenario)


def test_a_cancel_in_own_code_is_the_stores_alone() -> None:
    async def scenario(bench: HandlerBench) -> None:
        async def handler(_ctx: Context) -> None:
            await asyncio.sleep(1000)

        job = works(bench, handler)
        await asyncio.sleep(1)
        bench.store.cancelled.add(job)
        await asyncio.sleep(5)
        assert (bench.store.settled, bench.store.released) == ([], [])
        assert len(bench.worker.in_flight) == 0

    play(scenario)


@pytest.mark.parametrize("end", ["cancel", "drain"])
def test_an_end_while_a_call_is_recorded_reaches_the_function(end: str) -> None:
    """It waits for something else than the task whose call is told."""

    async def scenario(bench: HandlerBench) -> None:
        bench.store.gates["finish_calls"] = asyncio.Event()

        async def handler(ctx: Context) -> None:
            keep.append(asyncio.create_task(ask(ctx, "beside")))
            await asyncio.sleep(1000)

        keep: list[asyncio.Task[str]] = []
        job = works(bench, handler)
        await asyncio.sleep(2)
        if end == "cancel":
            bench.store.cancelled.add(job)
        else:
            bench.worker.stop()
        await asyncio.sleep(20)
        bench.store.gates["finish_calls"].set()
        await asyncio.sleep(5)
        assert len(bench.worker.in_flight) == 0
        assert len(bench.store.finished) == 1
        await asyncio.gather(*keep, return_exceptions=True)

    play(scenario, drain_seconds=10)


@pytest.mark.parametrize("where", ["call", "own code"])
def test_a_lost_lease_ends_the_run(where: str) -> None:
    async def scenario(bench: HandlerBench) -> None:
        bench.calls.seconds = 8

        async def handler(ctx: Context) -> None:
            if where == "call":
                await ask(ctx, "x")
            await asyncio.sleep(1000)

        job = works(bench, handler)
        await asyncio.sleep(1)
        bench.store.fences[job] = "another's"
        bench.store.lost.add(job)
        await asyncio.sleep(20)
        assert len(bench.worker.in_flight) == 0
        assert bench.store.settled == []
        assert len(bench.store.finished) == (where == "call"), "what was paid is told"

    play(scenario)


@pytest.mark.parametrize(
    "trouble",
    [StoreUnavailable("away"), UnknownQueue("reset, and not configured yet")],
    ids=["away", "reset"],
)
def test_a_store_that_is_away_is_waited_for(trouble: LlmqueueError) -> None:
    """Q40"""

    async def scenario(bench: HandlerBench) -> None:
        for name in ("acquire", "journal", "finish_calls"):
            bench.store.faults[name].extend([trouble] * 5)
        bench.store.after["finish_calls"].append(StoreUnavailable("lost reply"))
        bench.store.faults["progress"].append(trouble)

        async def handler(ctx: Context) -> str:
            await ctx.progress(0.5)
            return await ask(ctx, "x")

        assert bench.app is not None
        bench.app.handler("work")(handler)
        bench.run("work", fields={"journaled": True})
        await asyncio.sleep(60)
        assert bench.outcome().kind is OutcomeClass.SUCCESS
        assert (len(bench.store.finished), bench.texts) == (1, ["x"])

    play(scenario)
