"""What queues did, ever: the same as the ledger says, each thing once."""

from __future__ import annotations

from typing import Any

import pytest

from llmqueue.config import Limit
from llmqueue.outcome import Outcome, Usage
from llmqueue.states import JobState, LimitUnit, OutcomeClass, Severity
from llmqueue.store.meters import OTHER_MODELS, UNNAMED_MODEL
from llmqueue.store.port import Grant
from support.handlerbench import acquire, end_run, finish, make_call
from support.meterbench import billed, counted, credit, meters, settlement
from support.storebench import StoreBench, after_lease

USAGE = Usage(100, 40, cached_tokens=30, cache_write_tokens=20, reasoning_tokens=15)


async def settle(
    bench: StoreBench, grant: Grant, kind: OutcomeClass = OutcomeClass.SUCCESS, **fields: Any
) -> str:
    cost, seconds = fields.pop("cost", 1000), fields.pop("seconds", 1.5)
    if kind is OutcomeClass.SUCCESS:
        fields.setdefault("usage", USAGE)
        fields.setdefault("result", b"{}")
    item = settlement(grant, Outcome(kind, **fields), cost=cost, seconds=seconds)
    return (await bench.store.settle(bench.queue, [item]))[0].verdict


async def sent(bench: StoreBench, **fields: Any) -> Grant:
    await bench.enqueue(**fields)
    grant = await bench.take()
    assert await bench.send(grant) == [True]
    return grant


async def test_a_queue_that_did_nothing(bench: StoreBench) -> None:
    found = await meters(bench)
    assert (found.enqueued, found.granted, found.settled, found.reviews) == (0, 0, 0, 0)
    assert found.calls == {}
    assert found.ended == dict.fromkeys(
        (JobState.SUCCEEDED, JobState.DEAD, JobState.CANCELLED, JobState.EXPIRED), 0
    )
    assert found.dead == dict.fromkeys(Severity, 0)
    assert found.call_seconds.count == found.queue_wait_seconds.count == 0


async def test_they_are_read_only_where_they_are_wanted(bench: StoreBench) -> None:
    await bench.enqueue()
    await bench.run_one()
    plain = await bench.store.snapshot(bench.queue, horizon_seconds=0)
    assert plain.queues[0].meters is None
    many = await bench.store.snapshots({bench.queue: 0.0}, meters={bench.queue})
    (queue,) = many[bench.queue].queues  # type: ignore[union-attr]
    assert queue.meters is not None
    assert queue.meters.settled == 1


async def test_a_success(bench: StoreBench) -> None:
    grant = await sent(bench, model="asked")
    await settle(bench, grant, model="answered", seconds=2.0)
    found = await meters(bench)
    assert found.calls == {("answered", "SUCCESS"): 1}
    assert found.tokens == {
        ("answered", "input"): 50,
        ("answered", "cached_input"): 30,
        ("answered", "cache_write"): 20,
        ("answered", "output"): 25,
        ("answered", "reasoning"): 15,
    }
    assert found.cost_nano_usd == {"answered": 1000}
    assert (found.enqueued, found.granted, found.settled) == (1, 1, 1)
    assert found.ended[JobState.SUCCEEDED] == 1
    assert found.retries == {}
    assert found.call_seconds.counts[2] == found.call_seconds.count == 1
    assert found.call_seconds.total == pytest.approx(2.0, abs=0.01)


@pytest.mark.parametrize(
    ("seconds", "bucket"), [(0.2, 0), (0.5, 0), (0.51, 1), (600.0, 10), (601.0, 11)]
)
async def test_durations(bench: StoreBench, seconds: float, bucket: int) -> None:
    await settle(bench, await sent(bench), seconds=seconds)
    assert (await meters(bench)).call_seconds.counts[bucket] == 1


async def test_waits_begin_anew_with_each_return(bench: StoreBench) -> None:
    await bench.enqueue()
    await bench.advance(30)
    grant = await bench.take()
    await bench.store.release(bench.queue, [(grant.id, grant.fence)])
    await bench.advance(2)
    await bench.take()
    await bench.enqueue(delay_seconds=100)
    await bench.advance(103)
    await bench.store.snapshot(bench.queue, horizon_seconds=0)  # due now
    await bench.take()
    waits = (await meters(bench)).queue_wait_seconds
    assert [sum(waits.counts[:2]), *waits.counts[2:5]] == [1, 1, 0, 1], "0, 2 and 30 s"
    assert waits.total == pytest.approx(32, abs=1)


async def test_the_models_with_names_are_bounded(bench: StoreBench) -> None:
    names = [f"m{n}" for n in range(25)]
    for name in [*names, *names, ""]:
        await settle(bench, await sent(bench), model=name)
    found = await meters(bench)
    assert found.calls[OTHER_MODELS, "SUCCESS"] == 11
    assert {key[0] for key in found.calls} == {*names[:20], OTHER_MODELS}


async def test_a_model_that_is_called_like_the_rest(bench: StoreBench) -> None:
    for name in [OTHER_MODELS, *(f"m{n}" for n in range(21))]:
        await settle(bench, await sent(bench), model=name)
    assert (await meters(bench)).calls[OTHER_MODELS, "SUCCESS"] == 3


async def test_strange_names(bench: StoreBench) -> None:
    for name in ("", "a:b", "x\x1fy", "é" * 200, "a" + "é" * 200, "c:0:SUCCESS"):
        await settle(bench, await sent(bench), model=name)
    found = await meters(bench)
    assert sum(found.calls.values()) == 6
    assert found.calls[UNNAMED_MODEL, "SUCCESS"] == 1
    assert found.calls["a:b", "SUCCESS"] == 1
    assert found.calls["x y", "SUCCESS"] == 1


@pytest.mark.parametrize("severity", list(Severity))
async def test_dead_letters(bench: StoreBench, severity: Severity) -> None:
    await settle(bench, await sent(bench), OutcomeClass.PERMANENT, severity=severity)
    found = await meters(bench)
    assert {s for s, n in found.dead.items() if n} == {severity}
    assert found.ended[JobState.DEAD] == 1


async def test_a_job_that_is_too_large_now(bench: StoreBench) -> None:
    await bench.enqueue(tokens=(500, 500))
    await bench.configure(budget={"limits": (Limit(LimitUnit.TOKENS, 100),)})
    await bench.claim()
    assert (await meters(bench)).dead[Severity.ERROR] == 1


async def test_retries(bench: StoreBench) -> None:
    for kind in (OutcomeClass.TRANSIENT, OutcomeClass.MALFORMED, OutcomeClass.OVERLOAD):
        await settle(bench, await sent(bench), kind)
    await settle(bench, await sent(bench), OutcomeClass.TRANSIENT, sent=False)
    await settle(bench, await sent(bench, max_attempts=1), OutcomeClass.TRANSIENT)
    found = await meters(bench)
    assert found.retries == {"TRANSIENT": 2, "MALFORMED": 1, "OVERLOAD": 1}
    assert sum(found.calls.values()) == 4, "what was not sent is no call"


async def test_ends(bench: StoreBench) -> None:
    (ready,) = await bench.enqueue()
    await bench.store.cancel(ready)
    await bench.enqueue(deadline_seconds=5)
    await bench.advance(6)
    await bench.store.snapshot(bench.queue, horizon_seconds=0)
    found = await meters(bench)
    assert (found.ended[JobState.CANCELLED], found.ended[JobState.EXPIRED]) == (1, 1)
    assert sum(found.dead.values()) == 0, "an expired job is no dead letter"


async def test_a_settle_that_is_repeated_counts_once(bench: StoreBench) -> None:
    grant = await sent(bench)
    for verdict in ("settled", "repeated", "repeated"):
        assert await settle(bench, grant) == verdict
    found = await meters(bench)
    assert (found.settled, sum(found.calls.values()), found.fenced) == (1, 1, 0)
    assert await counted(bench) == await billed(bench)


# ---------------------------------------------------------------- lost workers


async def test_a_call_that_is_lost_is_counted_at_its_worst_case(bench: StoreBench) -> None:
    await sent(bench, model="m", tokens=(10, 100), worst_nano_usd=900_000_000)
    await after_lease(bench)
    found = await meters(bench)
    assert found.calls == {("m", "UNKNOWN"): 1}
    assert found.tokens == {("m", "input"): 10, ("m", "output"): 100}
    assert found.cost_nano_usd == {"m": 900_000_000}
    assert (found.reclaims, found.reviews, found.call_seconds.count) == (1, 1, 0)
    assert await counted(bench) == await billed(bench)


async def test_what_was_counted_too_much_is_taken_off_what_comes_next(bench: StoreBench) -> None:
    """Counters never fall, and agree with the ledger again as soon as enough was booked."""
    grant = await sent(bench, model="m", tokens=(10, 100), worst_nano_usd=900_000_000)
    await after_lease(bench)
    lost = await meters(bench)
    assert await settle(bench, grant, usage=Usage(8, 5), cost=500_000_000) == "settled"
    corrected = await meters(bench)
    assert corrected.cost_nano_usd == lost.cost_nano_usd
    assert corrected.tokens == lost.tokens
    assert corrected.calls == {("m", "UNKNOWN"): 1, ("m", "SUCCESS"): 1}
    assert await credit(bench) != {}
    assert await counted(bench) == await billed(bench)
    await settle(bench, await sent(bench, model="m"), usage=Usage(10, 100), cost=300_000_000)
    assert (await meters(bench)).cost_nano_usd == {"m": 900_000_000}
    await settle(bench, await sent(bench, model="m"), usage=Usage(10, 100), cost=300_000_000)
    await settle(bench, await sent(bench, model="m"), OutcomeClass.UNKNOWN)
    assert await credit(bench) == {}
    found = await counted(bench)
    assert found == await billed(bench)
    assert found.cost == {"m": 1_100_001_000}


async def test_a_duplicate_that_is_known(bench: StoreBench) -> None:
    """The repeat of a lost call is one; the 429 before it cost nothing."""
    await sent(bench, worst_nano_usd=5)
    await after_lease(bench)
    repeat = await bench.take(worker="w:2")
    await bench.send(repeat)
    await settle(bench, repeat, OutcomeClass.RATE, retry_after_seconds=0.1)
    await bench.advance(30)
    assert (await meters(bench)).possible_duplicates == 0
    repeat = await bench.take(worker="w:2")
    await bench.send(repeat)
    await settle(bench, repeat)
    found = await meters(bench)
    assert found.possible_duplicates == 1
    assert found.retries["UNKNOWN"] == 1
    assert await counted(bench) == await billed(bench)


async def test_a_settle_that_comes_too_late(bench: StoreBench) -> None:
    """Of a job that is gone, too: its queue is known."""
    first = await sent(bench, worst_nano_usd=5)
    await after_lease(bench)
    repeat = await bench.take(worker="w:2")
    await bench.send(repeat)
    await settle(bench, repeat)
    assert await settle(bench, first) == "fenced"
    gone = await sent(bench)
    await bench.redis.delete(bench.key("j", gone.id))
    assert await settle(bench, gone) == "fenced"
    assert (await meters(bench)).fenced == 2
    found = await counted(bench)
    assert found == await billed(bench)
    assert found.calls[UNNAMED_MODEL, "SUCCESS"] == 3


# ---------------------------------------------------------------- handlers


async def test_calls_of_handlers(bench: StoreBench) -> None:
    """Each is counted when it is finished, the end of the run is none."""
    await bench.configure(queue={"handlers": True})
    await bench.enqueue(handler="h")
    grant = await bench.take()
    await make_call(bench, grant, 1)
    await make_call(bench, grant, 2)
    assert await finish(bench, grant, 2), "a repeat"
    assert await end_run(bench, grant) == "succeeded"
    found = await meters(bench)
    assert sum(found.calls.values()) == 2
    assert found.ended[JobState.SUCCEEDED] == 1
    assert await counted(bench) == await billed(bench)


async def test_only_the_call_in_doubt_may_be_a_duplicate(bench: StoreBench) -> None:
    await bench.enqueue(handler="h")
    grant = await bench.take()
    await acquire(bench, grant, 1, worst_nano_usd=5)
    await bench.send(grant)
    await after_lease(bench)
    again = await bench.take(worker="w:2")
    await make_call(bench, again, 1, usage=USAGE)
    await make_call(bench, again, 2, usage=USAGE)
    assert (await meters(bench)).possible_duplicates == 1
    assert await counted(bench) == await billed(bench)


async def test_jobs_that_report_failures_are_counted_like_others(bench: StoreBench) -> None:
    await bench.configure(queue={"handlers": True})
    await settle(bench, await sent(bench), OutcomeClass.PERMANENT)
    found = await meters(bench)
    assert found.enqueued == 2
    failure = await bench.take()
    assert await end_run(bench, failure) == "succeeded"
    found = await meters(bench)
    assert found.granted == found.settled == sum(found.ended.values()) == 2
    assert found.queue_wait_seconds.count == 1, "it waits for no budget"


# ---------------------------------------------------------------- all of it


async def test_a_mixed_run_agrees_with_the_ledger(bench: StoreBench) -> None:
    kinds = [k for k in OutcomeClass if k is not OutcomeClass.SUCCESS]
    for number, kind in enumerate(kinds):
        await settle(bench, await sent(bench, model=f"m{number % 3}", worst_nano_usd=7), kind)
        await bench.store.resume(bench.queue)
        await bench.advance(400)
        for grant in (await bench.claim(32)).grants:
            if (await bench.send(grant)) == [True]:
                cost = None if number % 2 else 77
                await settle(bench, grant, model=f"m{number % 3}", cost=cost, usage=USAGE)
    late = await sent(bench, model="m1", worst_nano_usd=900_000_000)
    dead = await sent(bench, model="m1", worst_nano_usd=5)
    await after_lease(bench)
    await settle(bench, late, cost=123, usage=Usage(3, 2), model="m1")
    repeat = await bench.take(worker="w:2")
    assert repeat.id == dead.id
    await bench.send(repeat)
    await settle(bench, repeat, model="m2")
    await settle(bench, dead, model="m1")
    found = await counted(bench)
    assert found == await billed(bench)
    assert sum(found.calls.values()) > len(kinds)
    assert found.unpriced
    await conserved(bench)


async def conserved(bench: StoreBench) -> None:
    """What was stored has ended, or is there."""
    found = await meters(bench)
    states = await bench.states()
    left = sum(n for state, n in states.items() if not JobState(state).terminal)
    assert found.enqueued - sum(found.ended.values()) == left
