"""The life of a job: cancel, deadlines, idempotency, bounds, retention, bands, retries."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from llmqueue.config import Retention, RetryPolicy, Schedule
from llmqueue.errors import IdempotencyConflict, QueueFull, UnknownJob, UnknownQueue
from llmqueue.outcome import Usage
from llmqueue.states import JobState, OutcomeClass, WaitReason
from llmqueue.store import keys
from support.handlerbench import make_call
from support.storebench import StoreBench, after_lease, beat, drain_queue

REPEAT_SECONDS = 120
"""Nothing is forgotten sooner after its enqueue: a producer may still repeat that."""

# ---------------------------------------------------------------- cancel, deadline


async def test_cancel_in_every_state(bench: StoreBench) -> None:
    """Q48, Q29: unsent at once; sent: the worker learns it; the slot is free again."""
    await bench.configure(budget={"max_in_flight": 2})
    ready, delayed = (await bench.enqueue())[0], (await bench.enqueue(delay_seconds=60))[0]
    assert await bench.store.cancel(ready) is JobState.CANCELLED
    assert await bench.store.cancel(delayed) is JobState.CANCELLED
    leased = (await bench.enqueue())[0]
    grant = await bench.take()
    assert await bench.store.cancel(leased) is JobState.CANCELLED
    assert await bench.send(grant) == [False]
    sent = (await bench.enqueue())[0]
    grant = await bench.take()
    await bench.send(grant)
    assert await bench.store.cancel(sent) is JobState.SENT
    assert (await beat(bench, **{sent: grant.fence})).cancelled == {sent}
    await bench.settle(grant, OutcomeClass.CANCELLED)
    assert (await bench.states()) == {"cancelled": 4}
    assert (await bench.store.job(sent)).cost_nano_usd == 1000


async def test_an_answer_that_is_in_beats_cancel(bench: StoreBench) -> None:
    await bench.enqueue()
    grant = await bench.take()
    await bench.send(grant)
    await bench.store.cancel(grant.id)
    await bench.settle(grant)
    assert await bench.state(grant.id) == "succeeded"


async def test_cancelled_and_lost_is_never_in_review(bench: StoreBench) -> None:
    await bench.enqueue(1, worst_nano_usd=10**9)
    grant = await bench.take()
    await bench.send(grant)
    await bench.store.cancel(grant.id)
    await after_lease(bench)
    assert await bench.state(grant.id) == "cancelled"


async def test_cancelled_jobs_at_the_head(bench: StoreBench) -> None:
    """A thousand cancelled jobs before a live one: claims work through them in bounded steps."""
    ids = await bench.enqueue(1000)
    for job_id in ids:
        await bench.store.cancel(job_id)
    live = (await bench.enqueue())[0]
    for _ in range(80):
        reply = await bench.claim()
        if reply.grants:
            break
        assert reply.reason is WaitReason.AGAIN
        assert reply.wait_seconds == 0
    assert reply.grants[0].id == live


async def test_deadline_expires_waiting_jobs(bench: StoreBench) -> None:
    """P13: a block of hours: the deadline ends the job and says why."""
    await bench.enqueue(2, deadline_seconds=30)
    first = await bench.run_one(OutcomeClass.RATE, retry_after_seconds=7200)
    for _ in range(11):
        await bench.advance(3)
        await bench.store.snapshot(bench.queue, horizon_seconds=0)
    job = await bench.store.job(first.id)
    assert job.state is JobState.EXPIRED
    assert job.error
    assert job.error["reason"] == "deadline passed"
    assert (await bench.states()) == {"expired": 2}


async def test_deadline_stands_still_while_paused(bench: StoreBench) -> None:
    """A credential pause is not the job's fault: its deadline waits."""
    await bench.enqueue(2, deadline_seconds=30)
    await bench.run_one(OutcomeClass.QUOTA, credential="k")
    for _ in range(20):
        await bench.advance(4)
        await bench.store.snapshot(bench.queue, horizon_seconds=0)
    assert (await bench.states()) == {"ready": 2}


async def test_deadline_during_a_call_ends_its_retry_only(bench: StoreBench) -> None:
    await bench.enqueue(2, deadline_seconds=5)
    good, bad = await bench.take(), None
    await bench.advance(0.1)
    bad = await bench.take()
    await bench.send(good, bad)
    await bench.advance(4)
    await beat(bench, **{good.id: good.fence, bad.id: bad.fence})
    await bench.advance(2)
    await beat(bench, **{good.id: good.fence, bad.id: bad.fence})
    await bench.settle(good)
    await bench.settle(bad, OutcomeClass.TRANSIENT)
    assert (await bench.states()) == {"succeeded": 1, "expired": 1}


# ---------------------------------------------------------------- idempotency, bounds, retention


async def test_idempotency_key(bench: StoreBench) -> None:
    """P27, Q34: the same key is the same job, in every state; other bytes are an error."""
    first = await bench.enqueue_one(key="order-1")
    assert not first.duplicate
    for expected in ("ready", "leased", "sent", "succeeded"):
        if expected == "leased":
            grant = await bench.take()
        elif expected == "sent":
            await bench.send(grant)
        elif expected == "succeeded":
            await bench.settle(grant)
        again = await bench.enqueue_one(key="order-1")
        assert (again.id, again.duplicate, str(again.state)) == (first.id, True, expected)
    with pytest.raises(IdempotencyConflict, match="other bytes"):
        await bench.enqueue_one(key="order-1", payload=b'{"x":2}')
    other = await bench.enqueue_one(key="order-1", tenant="t")
    assert other.id != first.id


async def test_idempotency_outlives_the_job(bench: StoreBench) -> None:
    """Q34: after retention the key still answers, for the rest of idempotencySeconds."""
    await bench.configure(
        queue={"retention": Retention(succeeded_seconds=5), "idempotency_seconds": 3600}
    )
    first = await bench.enqueue_one(key="k")
    await bench.run_one()
    await bench.advance(REPEAT_SECONDS + 1)
    await bench.store.snapshot(bench.queue, horizon_seconds=0)
    with pytest.raises(UnknownJob):
        await bench.store.job(first.id)
    again = await bench.enqueue_one(key="k")
    assert (again.id, again.duplicate, str(again.state)) == (first.id, True, "succeeded")


async def test_idempotency_outlives_a_cancelled_job_still_listed(bench: StoreBench) -> None:
    """Q34: a cancelled job's list entry is met after its retention; the key answers all the same."""
    await bench.configure(
        queue={"retention": Retention(failed_seconds=5), "idempotency_seconds": 3600}
    )
    first = await bench.enqueue_one(key="k")
    await bench.store.cancel(first.id)
    await bench.advance(REPEAT_SECONDS + 1)
    await bench.store.snapshot(bench.queue, horizon_seconds=0)
    assert not (await bench.claim()).grants
    again = await bench.enqueue_one(key="k")
    assert (again.duplicate, str(again.state)) == (True, "cancelled")


async def test_enqueue_is_all_or_none(bench: StoreBench) -> None:
    await bench.configure(queue={"max_jobs": 3})
    with pytest.raises(QueueFull, match="0 of 3 jobs"):
        await bench.enqueue(4)
    assert await bench.states() == {}


async def test_queue_full_says_when(bench: StoreBench) -> None:
    """P13, Q46: bounded by count and bytes; what ends makes room."""
    await bench.configure(queue={"max_jobs": 2})
    await bench.enqueue(2)
    await bench.store.write_plan(bench.queue, {"eta_seconds": 90})
    with pytest.raises(QueueFull, match="2 of 2 jobs") as full:
        await bench.enqueue()
    assert full.value.estimated_wait_seconds == 90
    await bench.run_one()
    await bench.enqueue()
    await bench.configure(queue={"max_jobs": 100, "max_bytes": 1000})
    with pytest.raises(QueueFull, match="bytes"):
        await bench.enqueue(payload=b"x" * 1000)


async def test_unknown_queue(bench: StoreBench) -> None:
    with pytest.raises(UnknownQueue, match="default/nobody"):
        await bench.store.enqueue([replace(bench.new(), queue="default/nobody")])


async def test_removed_queue_refuses_and_adopts(bench: StoreBench) -> None:
    """Jobs of a removed queue are kept; the same name adopts them."""
    job_id = (await bench.enqueue())[0]
    await bench.store.remove_queue(bench.queue)
    with pytest.raises(UnknownQueue):
        await bench.enqueue()
    assert (await bench.claim()).reason is WaitReason.UNCONFIGURED
    await bench.configure()
    assert (await bench.take()).id == job_id


async def test_a_running_call_of_a_removed_queue_comes_to_its_end(bench: StoreBench) -> None:
    """It is known by its id: what was paid is booked, and its lease renewed until then."""
    for job in [bench.new(), bench.new(handler="h")]:
        await bench.store.enqueue([job])
    await bench.warm()
    payload, handler = (await bench.claim(2)).grants
    await bench.store.remove_queue(bench.queue)
    bench.store._redis._read_at = float("-inf")  # its copy of the registry is old

    reply = await beat(bench, **{payload.id: payload.fence, handler.id: handler.fence})
    assert (reply.lost, reply.cancelled) == (frozenset(), frozenset())
    assert await bench.send(payload) == [True]
    assert (await bench.settle(payload)).verdict == "settled"
    assert await make_call(bench, handler)
    await bench.store.release(bench.queue, [(handler.id, handler.fence)])
    assert [await bench.state(each.id) for each in (payload, handler)] == ["succeeded", "ready"]


async def test_an_id_of_before_a_reset_is_refused(bench: StoreBench) -> None:
    """It would run, and nobody could ever find it by its id."""
    before = bench.new()
    await bench.redis.delete(keys.REGISTRY)
    await bench.configure()
    with pytest.raises(UnknownQueue, match="made anew"):
        await bench.store.enqueue([bench.new(), before])
    assert await bench.states() == {}
    await bench.enqueue()


async def test_a_plan_is_read_as_it_was_written(bench: StoreBench) -> None:
    assert await bench.store.read_plan(bench.queue) == {}
    await bench.store.write_plan(
        bench.queue, {"desired": 3, "bound_by": "Requests", "eta_seconds": ""}
    )
    plan = await bench.store.read_plan(bench.queue)
    assert plan == {"desired": "3", "bound_by": "Requests", "eta_seconds": ""}


async def test_a_job_outlives_the_repeats_of_its_enqueue(bench: StoreBench) -> None:
    """Q1: the answer to an enqueue was lost, and the job is long done: repeating it runs nothing."""
    await bench.configure(queue={"retention": Retention(succeeded_seconds=1)})
    job = bench.new()
    await bench.store.enqueue([job])
    await bench.run_one()
    await bench.advance(REPEAT_SECONDS - 10)
    await bench.store.snapshot(bench.queue, horizon_seconds=0)
    again = (await bench.store.enqueue([job]))[0]
    assert str(again.state) == "succeeded"
    assert await bench.states() == {"succeeded": 1}
    await bench.advance(20)
    await bench.store.snapshot(bench.queue, horizon_seconds=0)
    assert await bench.states() == {}


async def test_memory_returns_to_base(bench: StoreBench) -> None:
    """Q43: after retention nothing of a job is left."""
    await bench.configure(
        budget={"outcome_memory_seconds": 1},
        queue={"retention": Retention(succeeded_seconds=2, failed_seconds=2)},
    )
    await bench.enqueue()
    await bench.run_one()
    base = None
    for _ in range(2):
        await bench.enqueue(300)
        await drain_queue(bench)
        await bench.advance(REPEAT_SECONDS + 1)
        while (await bench.store.snapshot(bench.queue, horizon_seconds=0)).again:
            pass
        await asyncio.sleep(1.1)
        await bench.redis.xtrim(bench.key("ledger"), maxlen=0)
        names = sorted([k async for k in bench.redis.scan_iter(count=1000)])
        assert base is None or names == base
        base = names
    assert not [name for name in base or [] if b":j:" in name or b":a:" in name]


async def test_count_limits_apply_after_an_hour(bench: StoreBench) -> None:
    await bench.configure(queue={"retention": Retention(max_succeeded=2)})
    await bench.enqueue(5)
    await drain_queue(bench)
    await bench.advance(3500)
    await bench.store.snapshot(bench.queue, horizon_seconds=0)
    assert (await bench.states()) == {"succeeded": 5}
    await bench.advance(200)
    await bench.store.snapshot(bench.queue, horizon_seconds=0)
    assert (await bench.states()) == {"succeeded": 2}


# ---------------------------------------------------------------- order


async def test_priority_bands(bench: StoreBench) -> None:
    """Q31: 10 is most urgent, 5 the default in the middle, FIFO inside a band."""
    order: dict[str, int] = {}
    for priority in (1, 5, 10, 7, 3, 9, 8, 4):
        order[(await bench.enqueue(priority=priority))[0]] = priority
    default = (await bench.enqueue())[0]
    done = await drain_queue(bench)
    assert [order.get(i, 5) for i in done] == [10, 9, 7, 8, 5, 4, 5, 1, 3]
    assert done.index(default) == 6


async def test_lowest_band_is_served(bench: StoreBench) -> None:
    """Q33: under steady urgent load each lower band gets its share of every 20th grant."""
    low = set(await bench.enqueue(2, priority=1)) | set(await bench.enqueue(2, priority=5))
    await bench.enqueue(150, priority=10)
    done = await drain_queue(bench, slots=1)
    assert max(done.index(i) for i in low) <= 90


async def test_returned_job_is_first_of_its_band(bench: StoreBench) -> None:
    """Q32: an urgent job that was reclaimed comes before newer urgent ones, in its first order."""
    urgent = await bench.enqueue(2, priority=10)
    await bench.warm()
    reply = await bench.claim(2)
    assert [g.id for g in reply.grants] == urgent
    newer = await bench.enqueue(1, priority=10, tenant="other")
    await after_lease(bench)
    done = [(await bench.take(worker=f"w{n}:1")).id for n in range(3)]
    assert done == [*urgent, *newer]


async def test_tenants_take_turns(bench: StoreBench) -> None:
    """P33: B's ten jobs wait at most two rounds behind A's thousand."""
    await bench.enqueue(1000, tenant="a")
    mine = set(await bench.enqueue(10, tenant="b"))
    done: list[str] = []
    while len(done) < 30:
        await bench.advance(0.1)
        grant = await bench.take()
        done.append(grant.id)
        await bench.send(grant)
        await bench.settle(grant)
    assert mine <= set(done[:22])


async def test_claims_only_free_slots(bench: StoreBench) -> None:
    """Q13: nothing is prefetched."""
    await bench.enqueue(20)
    await bench.warm()
    assert len((await bench.claim(3)).grants) == 3
    assert (await bench.states()) == {"ready": 17, "leased": 3}


# ---------------------------------------------------------------- bytes


PAYLOADS = {
    "json": b'{"x":[9223372036854775807,[],{}]}',
    "nul": b"\x00\x01\x00",
    "emoji": "🦆".encode(),
    "random": bytes(range(256)) * 4,
    "empty": b"",
    "large": b"p" * 250_000,
}


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS.keys())
async def test_bytes_are_never_touched(bench: StoreBench, payload: bytes) -> None:
    """Q45: payload and result come back byte for byte."""
    await bench.enqueue(payload=payload)
    grant = await bench.take()
    assert grant.payload == payload
    await bench.send(grant)
    result = payload * 4
    await bench.settle(grant, usage=Usage(1, 1), result=result)
    job = await bench.store.job(grant.id)
    assert job.result == result


async def test_large_result_is_renamed_once(bench: StoreBench) -> None:
    """A result above 64 KiB is written apart and survives a repeated settle."""
    await bench.enqueue()
    grant = await bench.take()
    await bench.send(grant)
    result = b"r" * 1_000_000
    for _ in range(2):
        await bench.settle(grant, usage=Usage(1, 1), result=result)
    assert (await bench.store.job(grant.id)).result == result
    assert await bench.redis.ttl(bench.key("d", grant.id)) == -1


# ---------------------------------------------------------------- retries


async def test_schedule_by_class(bench: StoreBench) -> None:
    """Each class has its own delays; exhausted ones end dead."""
    retry = RetryPolicy(overload=Schedule((15, 60)), transient=Schedule((3,)), jitter_percent=0)
    await bench.configure(queue={"retry": retry})
    job_id = (await bench.enqueue())[0]
    for kind, delay in (
        (OutcomeClass.OVERLOAD, 15),
        (OutcomeClass.TRANSIENT, 3),
        (OutcomeClass.OVERLOAD, 60),
    ):
        await bench.run_one(kind)
        assert await bench.state(job_id) == "delayed"
        await bench.advance(delay - 0.5)
        assert not (await bench.claim()).grants
        await bench.advance(0.6)
    await bench.run_one(OutcomeClass.TRANSIENT)
    job = await bench.store.job(job_id)
    assert job.state is JobState.DEAD
    assert job.error
    assert "no attempts left" in job.error["reason"]
    assert (job.attempts_used, len(job.attempts)) == (4, 4)


async def test_max_attempts_of_the_job(bench: StoreBench) -> None:
    await bench.enqueue(max_attempts=1)
    grant = await bench.run_one(OutcomeClass.TRANSIENT)
    assert await bench.state(grant.id) == "dead"


async def test_own_backoff_of_the_job(bench: StoreBench) -> None:
    await bench.enqueue(backoff_seconds=(1.0, 1.0, 1.0, 1.0))
    for _ in range(4):
        await bench.run_one(OutcomeClass.TRANSIENT)
        await bench.advance(1.1)
    grant = await bench.run_one(OutcomeClass.TRANSIENT)
    assert await bench.state(grant.id) == "dead"


async def test_retry_after_on_transient_is_kept(bench: StoreBench) -> None:
    """P9: never earlier than the provider asked."""
    await bench.enqueue()
    await bench.run_one(OutcomeClass.TRANSIENT, retry_after_seconds=40)
    await bench.advance(39)
    assert not (await bench.claim()).grants
    await bench.advance(1.5)
    assert (await bench.claim()).grants


@pytest.mark.parametrize("kind", [OutcomeClass.PERMANENT, OutcomeClass.FORBIDDEN])
async def test_failures_without_retry(bench: StoreBench, kind: OutcomeClass) -> None:
    await bench.enqueue()
    grant = await bench.run_one(kind, status=400, message="bad field")
    job = await bench.store.job(grant.id)
    assert job.state is JobState.DEAD
    assert job.error
    assert (job.error["class"], job.error["message"]) == (str(kind), "bad field")


async def test_ready_jobs_run_however_much_there_is_to_forget(bench: StoreBench) -> None:
    """A burst of a day ago loses its retention at one moment: the budget is used all the same."""
    await bench.warm()
    await bench.enqueue(100)
    await drain_queue(bench)
    await bench.advance(30 * 86400)
    await bench.warm()
    (job,) = await bench.enqueue()
    assert (await bench.take()).id == job
