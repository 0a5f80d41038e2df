"""One attempt from its grant to its end, on a virtual clock, with faults at exact points."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import structlog.testing

from llmqueue.errors import StoreMisconfigured, StoreUnavailable
from llmqueue.job import MAX_RESULT_BYTES
from llmqueue.outcome import Outcome, Usage
from llmqueue.pricing import Priced
from llmqueue.states import JobState, OutcomeClass, ProviderType, RefusalReason, Severity
from llmqueue.store.port import Held
from llmqueue_worker.attempt import Attempt
from llmqueue_worker.batching import MOST_ITEMS
from llmqueue_worker.booking import Bookkeeper, pricing_of, unpriced
from support.memorystore import grant
from support.scriptedrunner import SUCCESS, Bench, start, working
from support.virtualtime import now, run_virtually, settle_down


async def run_one(bench: Bench, seconds: float = 30.0, **fields: Any) -> str:
    (job,) = bench.store.add(1, **fields)
    if bench.task is None:
        start(bench)
    await asyncio.sleep(seconds)
    return job


def test_asked_before_it_leaves_and_settled_once() -> None:
    async def scenario() -> None:
        async with working() as bench:
            bench.runner.connect_seconds = 1.0
            job = await run_one(bench)
            assert bench.store.times("mark_sent") == pytest.approx([1.0])
            assert bench.store.times("settle") == pytest.approx([2.0])
            (settled,) = bench.store.settled
            assert settled.outcome is SUCCESS
            assert settled.entry is not None
            assert settled.entry["job"] == job
            assert settled.entry["finished"] - settled.entry["started"] == pytest.approx(
                2, abs=0.01
            )
            assert len(bench.worker.in_flight) == 0

    run_virtually(scenario())


@pytest.mark.parametrize("reason", list(RefusalReason))
def test_refused_means_nothing_leaves_and_nothing_is_settled(reason: RefusalReason) -> None:
    async def scenario() -> None:
        async with working() as bench:
            bench.store.refuse_sent = reason
            job = await run_one(bench, 5)
            assert bench.runner.left == []
            assert bench.store.states[job] == JobState.READY
            assert (bench.store.settled, bench.store.named("release")) == ([], [])
            assert len(bench.worker.in_flight) == 0
            assert bench.worker.stats.refused == {reason: 1}

    run_virtually(scenario())


@pytest.mark.parametrize("lost_reply", [False, True], ids=["not reached", "reply lost"])
def test_without_an_acknowledged_ok_nothing_leaves(lost_reply: bool) -> None:
    """The job goes back, whether or not the store took it for sent: no review for an outage."""

    async def scenario() -> None:
        async with working() as bench:
            faults = bench.store.after if lost_reply else bench.store.faults
            faults["mark_sent"].append(StoreUnavailable("cut"))
            bench.store.faults["release"].extend([StoreUnavailable("cut")] * 10)
            job = await run_one(bench)
            assert bench.runner.left == []
            assert len(bench.store.named("release")) == 11
            assert bench.store.states[job] == JobState.READY
            assert bench.store.settled == []

    run_virtually(scenario())


def test_settled_again_and_again_until_acknowledged() -> None:
    """P25, Q40: an outage of ten minutes: one entry, though the lost replies did their work."""

    async def scenario() -> None:
        async with working() as bench:
            bench.store.after["settle"].extend([StoreUnavailable("cut")] * 3)
            bench.store.faults["settle"].extend([StoreUnavailable("gone")] * 300)
            job = await run_one(bench, 900)
            assert len(bench.store.settled) == 1
            assert bench.store.states[job] == JobState.SUCCEEDED
            assert bench.worker.stats.verdicts == {"repeated": 1}
            assert bench.runner.started == [job]

    run_virtually(scenario())


def test_holds_its_slot_and_lease_until_the_settle_is_acknowledged() -> None:
    async def scenario() -> None:
        async with working(slots=1) as bench:
            bench.store.gates["settle"] = asyncio.Event()
            bench.store.add(2)
            start(bench)
            await asyncio.sleep(20)
            assert bench.runner.started == ["job-1"]
            assert list(bench.store.named("beat")[-1].leases) == ["job-1"]
            bench.store.gates["settle"].set()
            await settle_down()
            assert bench.runner.started == ["job-1", "job-2"]

    run_virtually(scenario())


def test_a_settle_that_no_script_can_read_holds_up_no_other() -> None:
    async def scenario() -> None:
        async with working(slots=3) as bench:
            bench.store.faults["settle"].extend(
                [StoreMisconfigured("batch"), StoreMisconfigured("the bad one"), None, None]
            )
            bench.store.add(3)
            start(bench)
            await asyncio.sleep(20)
            assert set(bench.store.states.values()) == {JobState.SUCCEEDED}
            sizes = [len(items) for items in bench.store.named("settle")]
            assert sizes[:2] == [3, 1]

    run_virtually(scenario())


@pytest.mark.parametrize("sent", [False, True], ids=["before it was sent", "after"])
def test_a_bug_costs_neither_job_nor_pump(sent: bool) -> None:
    async def scenario() -> None:
        async def broken(attempt: Attempt) -> Outcome:
            if sent:
                await attempt.send()
            raise KeyError("choices")

        async with working() as bench:
            bench.runner.script = broken
            with structlog.testing.capture_logs() as logs:
                job = await run_one(bench, 3)
            (settled,) = bench.store.settled
            assert settled.outcome.kind is (
                OutcomeClass.UNKNOWN if sent else OutcomeClass.TRANSIENT
            )
            assert (settled.outcome.sent, settled.entry is not None) == (sent, sent)
            (line,) = [line for line in logs if line["event"] == "run-failed"]
            assert (line["job"], line["sent"]) == (job, sent)
            bench.runner.script = None
            await run_one(bench, 3)
            assert bench.store.settled[-1].outcome is SUCCESS

    run_virtually(scenario())


@pytest.mark.parametrize(
    ("cancelled_after", "kind", "sent", "asked"),
    [
        pytest.param(1.0, None, False, False, id="while connecting"),
        pytest.param(9.0, OutcomeClass.CANCELLED, True, True, id="during the call"),
    ],
)
def test_cancelled(
    cancelled_after: float, kind: OutcomeClass | None, sent: bool, asked: bool
) -> None:
    """Q48: the call is closed with the next heartbeat and booked; unsent, the store did it all."""

    async def scenario() -> None:
        async with working() as bench:
            bench.runner.connect_seconds, bench.runner.seconds = 5.0, 60.0
            job = await run_one(bench, cancelled_after)
            bench.store.cancelled.add(job)
            await asyncio.sleep(3.5)
            assert bench.runner.closed_calls == [job]
            assert bool(bench.runner.left) is asked
            outcomes = [(item.outcome.kind, item.outcome.sent) for item in bench.store.settled]
            assert outcomes == ([(kind, sent)] if kind else [])
            assert bench.store.named("release") == []
            assert len(bench.worker.in_flight) == 0
            bench.runner.connect_seconds = bench.runner.seconds = 0.1
            await run_one(bench, 10)
            assert bench.store.settled[-1].outcome is SUCCESS

    run_virtually(scenario())


def test_cancelled_while_the_store_is_asked() -> None:
    """Q48: the store may hold it as sent; it learns that nothing left."""

    async def scenario() -> None:
        async with working() as bench:
            bench.store.gates["mark_sent"] = asyncio.Event()
            job = await run_one(bench, 1)
            bench.store.cancelled.add(job)
            await asyncio.sleep(5)
            bench.store.gates["mark_sent"].set()
            await asyncio.sleep(1)
            assert bench.runner.left == []
            (settled,) = bench.store.settled
            assert (settled.outcome.kind, settled.outcome.sent) == (OutcomeClass.CANCELLED, False)
            assert settled.entry is None

    run_virtually(scenario())


def test_cancelled_as_the_settle_is_under_way() -> None:
    """Q48: an answer that is in wins."""

    async def scenario() -> None:
        async with working() as bench:
            bench.store.gates["settle"] = asyncio.Event()
            job = await run_one(bench, 2)
            bench.store.cancelled.add(job)
            bench.store.lost.add(job)
            await asyncio.sleep(10)
            bench.store.gates["settle"].set()
            await settle_down()
            assert [item.outcome for item in bench.store.settled] == [SUCCESS]
            assert bench.store.states[job] == JobState.SUCCEEDED

    run_virtually(scenario())


@pytest.mark.parametrize(
    ("lost_after", "runs_on"),
    [pytest.param(1.0, False, id="not sent: stopped"), pytest.param(9.0, True, id="sent: goes on")],
)
def test_lease_lost(lost_after: float, runs_on: bool) -> None:
    """P26: an unsent job is somebody else's now; a late settle of a sent one says what happened."""

    async def scenario() -> None:
        async with working() as bench:
            bench.runner.connect_seconds, bench.runner.seconds = 5.0, 20.0
            job = await run_one(bench, lost_after)
            bench.store.lost.add(job)
            bench.store.fences[job] = "somebody else's"
            await asyncio.sleep(4)
            assert bool(bench.worker.in_flight.attempts()) is runs_on
            await asyncio.sleep(60)
            assert bench.runner.closed_calls == ([] if runs_on else [job])
            assert bench.store.named("release") == []
            assert [item.outcome for item in bench.store.settled] == ([SUCCESS] if runs_on else [])

    run_virtually(scenario())


def test_the_same_job_twice_in_one_process() -> None:
    """A lost lease's call still runs while its job comes here again: both settle, each its own."""

    async def scenario() -> None:
        async with working() as bench:
            bench.runner.seconds = 20.0
            job = await run_one(bench, 1)
            first = bench.store.fences[job]
            bench.store.ready.append(grant(1, id=job))
            bench.store.work.set()
            await asyncio.sleep(5)
            assert len(bench.worker.in_flight) == 2
            assert bench.store.named("beat")[-1].leases == {job: bench.store.fences[job]}
            await asyncio.sleep(60)
            assert bench.store.settled[0].fence == first
            assert bench.worker.stats.verdicts == {"fenced": 1, "settled": 1}

    run_virtually(scenario())


def test_heartbeats_tell_what_is_held() -> None:
    """Q39: of a call, since when it is out; of an unsent job, that it is; until both are settled."""

    async def scenario() -> None:
        async with working() as bench:
            bench.runner.connect_seconds = 5.0
            bench.runner.seconds = 20.0
            bench.store.add(1)
            start(bench)
            await asyncio.sleep(4)
            beat = bench.store.named("beat")[-1]
            assert beat.held == {"job-1": Held(10, 100)}
            await asyncio.sleep(12)
            beat = bench.store.named("beat")[-1]
            since = beat.held["job-1"].sent_seconds
            assert since is not None
            assert 7 <= since <= 11
            await asyncio.sleep(20)
            assert bench.store.named("beat")[-1].held == {}

    run_virtually(scenario())


def test_what_is_given_back_is_not_asserted() -> None:
    """The store has it back, or soon will: a heartbeat must not lease it again."""

    async def scenario() -> None:
        async with working() as bench:
            bench.runner.connect_seconds = 60.0
            bench.store.gates["release"] = asyncio.Event()
            await run_one(bench, 1)
            bench.worker.stop()
            await asyncio.sleep(5)
            beat = bench.store.named("beat")[-1]
            assert list(beat.leases) == ["job-1"]
            assert beat.held == {}
            bench.store.gates["release"].set()

    run_virtually(scenario())


def test_what_a_person_must_mend_is_logged_with_its_job() -> None:
    async def scenario() -> None:
        async def refused(attempt: Attempt) -> Outcome:
            await attempt.send()
            return Outcome(OutcomeClass.AUTH, status=401, severity=Severity.CRITICAL, message="no")

        async with working() as bench:
            bench.runner.script = refused
            with structlog.testing.capture_logs() as logs:
                job = await run_one(bench, 3)
            (line,) = [line for line in logs if line["event"] == "call-refused"]
            assert (line["job"], line["outcome"], line["status"]) == (job, "AUTH", 401)

    run_virtually(scenario())


def test_decisions_and_settles_are_batched() -> None:
    async def scenario() -> None:
        async with working(slots=30) as bench:
            bench.store.add(30)
            start(bench)
            await asyncio.sleep(5)
            whole = [MOST_ITEMS, 30 - MOST_ITEMS]
            assert [request.slots for request in bench.store.named("claim")[:2]] == whole
            assert [len(pairs) for pairs, _ in bench.store.named("mark_sent")] == whole
            assert [len(items) for items in bench.store.named("settle")] == whole

    run_virtually(scenario())


# ---------------------------------------------------------------- booking


def attempt_of(**fields: Any) -> Attempt:
    async def ask(_attempt: Attempt) -> None:
        raise AssertionError("nobody asks here")

    from llmqueue.credentials import NO_CREDENTIAL

    return Attempt(grant(**fields), NO_CREDENTIAL, ask=ask, started_at=0.0, ends_at=1.0)


def per_token(_model: str, usage: Usage, _tier: str) -> Priced:
    return Priced(1000 * usage.input_tokens + usage.output_tokens, "1000/1")


@pytest.mark.parametrize(
    ("outcome", "cost", "estimated"),
    [
        pytest.param(SUCCESS, 9004, None, id="success: as used"),
        pytest.param(Outcome(OutcomeClass.SUCCESS, result=b"{}"), 10_100, True, id="no usage"),
        pytest.param(Outcome(OutcomeClass.UNKNOWN), 10_100, True, id="unknown: worst case"),
        pytest.param(
            Outcome(OutcomeClass.UNKNOWN, usage=Usage(1, 1, estimated=True)),
            10_100,
            True,
            id="cut stream: worst case",
        ),
        pytest.param(Outcome(OutcomeClass.CANCELLED), 10_100, True, id="cancelled: worst case"),
        pytest.param(Outcome(OutcomeClass.RATE, status=429), 0, None, id="429: nothing"),
        pytest.param(Outcome(OutcomeClass.PERMANENT, status=400), 0, None, id="400: nothing"),
        pytest.param(Outcome(OutcomeClass.MALFORMED, status=200), 10_100, True, id="malformed"),
        pytest.param(
            Outcome(OutcomeClass.OVERLOAD, status=200, usage=Usage(2, 3, estimated=True)),
            2003,
            True,
            id="stream ended by an error event: what was used",
        ),
        pytest.param(Outcome(OutcomeClass.SUCCESS, usage=Usage(0, 0)), 0, None, id="explicit 0"),
    ],
)
def test_what_a_call_is_booked_at(outcome: Outcome, cost: int, estimated: bool | None) -> None:
    settled = Bookkeeper(per_token, clock=lambda: 100.0).settlement(
        attempt_of(), outcome, seconds=2.5
    )
    assert settled.cost_nano_usd == cost
    assert settled.entry is not None
    assert settled.entry.get("estimated") is estimated
    assert (settled.entry["started"], settled.entry["finished"]) == (97.5, 100.0)
    assert 0 <= settled.jitter < 1


def test_what_was_not_sent_has_no_entry() -> None:
    """P25: no entry without a call."""
    outcome = Outcome(OutcomeClass.TRANSIENT, sent=False)
    settled = Bookkeeper(per_token).settlement(attempt_of(), outcome, seconds=1)
    assert (settled.entry, settled.cost_nano_usd) == (None, None)


def test_without_a_price_the_cost_is_not_known() -> None:
    settled = Bookkeeper(unpriced).settlement(attempt_of(), SUCCESS, seconds=1)
    assert settled.cost_nano_usd is None
    assert settled.entry is not None
    assert "price" not in settled.entry


@pytest.mark.parametrize(
    ("tier", "cost", "price"),
    [
        ("default", 1_250_000 + 100_000, "openai/gpt-5 in=1.25 cached=0.125 out=10"),
        ("flex", 625_000 + 50_000, "openai/gpt-5 in=0.625 cached=0.0625 out=5 (flex)"),
        ("scale", None, None),
    ],
)
def test_an_entry_holds_the_price_of_the_answers_tier(
    tier: str, cost: int | None, price: str | None
) -> None:
    outcome = Outcome(
        OutcomeClass.SUCCESS, usage=Usage(1000, 10), model="gpt-5-2025-08-07", service_tier=tier
    )
    settled = Bookkeeper(pricing_of(ProviderType.OPENAI)).settlement(
        attempt_of(), outcome, seconds=1
    )
    assert settled.entry is not None
    assert (settled.cost_nano_usd, settled.entry.get("price")) == (cost, price)


def test_a_result_too_large_to_keep_is_paid_and_fails() -> None:
    outcome = Outcome(OutcomeClass.SUCCESS, usage=Usage(9, 4), result=b"x" * (MAX_RESULT_BYTES + 1))
    settled = Bookkeeper(per_token).settlement(attempt_of(), outcome, seconds=1)
    assert settled.outcome.kind is OutcomeClass.PERMANENT
    assert settled.outcome.result is None
    assert str(MAX_RESULT_BYTES) in settled.outcome.message
    assert settled.cost_nano_usd == 9004


def test_how_long_the_longest_call_may_still_take() -> None:
    async def scenario() -> None:
        async with working(request_seconds=100, attempt_seconds=150, connect_seconds=10) as bench:
            bench.runner.seconds = 50.0
            bench.store.add(1, timeout_seconds=20.0)
            bench.store.add(1, timeout_seconds=1000.0)
            start(bench)
            await asyncio.sleep(6.5)
            assert now() == pytest.approx(6.5)
            beats = bench.store.named("beat")
            assert [b.longest_remaining_seconds for b in beats] == pytest.approx([0, 157, 154])

    run_virtually(scenario())
