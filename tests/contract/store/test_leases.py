"""Leases: lost replies, dead and slow workers, the sent decision, drain marks."""

from __future__ import annotations

import json
from typing import Any

import pytest

from llmqueue.config import Limit, RetryPolicy, UnknownOutcomePolicy
from llmqueue.states import JobState, LimitUnit, OutcomeClass, RefusalReason, WaitReason
from llmqueue.store.port import Grant
from support.storebench import LEASE_SECONDS, StoreBench, after_lease, beat


async def lost(bench: StoreBench, **fields: Any) -> Grant:
    """A job was sent, and its worker has vanished."""
    await bench.enqueue(1, **fields)
    grant = await bench.take()
    await bench.send(grant)
    await after_lease(bench)
    return grant


# ---------------------------------------------------------------- leases


async def test_lost_reply_is_ready_again_without_a_crash(bench: StoreBench) -> None:
    """Q1, Q15: the claim ran, its reply was lost; its live worker never lists it."""
    job_id = (await bench.enqueue())[0]
    grant = await bench.take()
    for _ in range(4):
        await bench.advance(LEASE_SECONDS / 3)
        await beat(bench)
    again = await bench.take(worker="w:2")
    assert again.id == job_id
    assert again.crashes == 0
    assert await bench.send(grant) == [False]
    assert (await bench.store.job(job_id)).attempts_used == 0


async def test_dead_worker_unsent_job_runs_again(bench: StoreBench) -> None:
    """P26, Q6, S9: kill -9 before the sent mark: ready again at the front, no attempt used."""
    first, second = await bench.enqueue(2)
    await bench.take()
    await after_lease(bench)
    again = await bench.take(worker="w:2")
    assert (again.id, again.crashes) == (first, 1)
    assert (await bench.store.job(first)).attempts_used == 0
    assert (await bench.take(worker="w:2")).id == second


async def test_dead_worker_sent_job_goes_to_review(bench: StoreBench) -> None:
    """P26, P23: kill -9 after the sent mark of a dear call: a person decides."""
    grant = await lost(bench, worst_nano_usd=60_000_000)
    job = await bench.store.job(grant.id)
    assert job.state is JobState.REVIEW
    assert job.attempts[-1]["class"] == "UNKNOWN"
    assert job.attempts[-1]["estimated"] is True
    ledger = await bench.redis.xrange(bench.key("ledger"))
    assert [row[b"k"] for _, row in ledger] == [b"lost"]
    assert json.loads(ledger[0][1][b"e"])["nano_usd"] == 60_000_000
    assert [j.id for j in await bench.store.jobs(bench.queue, JobState.REVIEW)] == [grant.id]


async def test_cheap_lost_call_is_repeated_once(bench: StoreBench) -> None:
    """P23, Q49: below 5 cents it is sent once more, marked; then a person decides."""
    first = await lost(bench, worst_nano_usd=1_000_000)
    second = await bench.take(worker="w:2")
    assert second.id == first.id
    assert second.possible_duplicate
    await bench.send(second)
    await after_lease(bench)
    assert await bench.state(first.id) == "review"
    assert len((await bench.store.job(first.id)).attempts) == 2


async def test_unpriced_lost_call_is_not_repeated(bench: StoreBench) -> None:
    """P23: a call without a price is never repeated by itself."""
    await bench.enqueue(1, worst_nano_usd=None)
    await bench.run_one(OutcomeClass.UNKNOWN)
    assert (await bench.states()) == {"review": 1}


@pytest.mark.parametrize(
    ("policy", "state"), [("Retry", "ready"), ("Fail", "dead"), ("Review", "review")]
)
async def test_unknown_policies(bench: StoreBench, policy: Any, state: str) -> None:
    """P23: what the queue's policy says of a dear call."""
    retry = RetryPolicy(unknown_outcome=UnknownOutcomePolicy(policy))
    await bench.configure(queue={"retry": retry})
    grant = await lost(bench, worst_nano_usd=10**9)
    assert await bench.state(grant.id) == state


async def test_late_answer_resolves_review(bench: StoreBench) -> None:
    """A worker that was only slow: its renewal ends the review, its answer wins."""
    grant = await lost(bench, worst_nano_usd=10**9)
    assert await bench.state(grant.id) == "review"
    await beat(bench, **{grant.id: grant.fence})
    assert await bench.state(grant.id) == "sent"
    await after_lease(bench)
    assert (await bench.settle(grant)).verdict == "settled"
    assert await bench.state(grant.id) == "succeeded"
    kinds = [row[b"k"] for _, row in await bench.redis.xrange(bench.key("ledger"))]
    assert b"correction" in kinds
    (attempt,) = (await bench.store.job(grant.id)).attempts
    assert attempt["class"] == "SUCCESS", "what was assumed still stands beside what was reported"


async def test_a_run_that_is_lost_twice_is_booked_once(bench: StoreBench) -> None:
    """Its renewal ended the review, and then its worker was gone again."""
    grant = await lost(bench, worst_nano_usd=10**9)
    await beat(bench, **{grant.id: grant.fence})
    await after_lease(bench)
    assert await bench.state(grant.id) == "review"
    await beat(bench, **{grant.id: grant.fence})
    assert (await bench.settle(grant)).verdict == "settled"
    assert (await bench.settle(grant)).verdict == "repeated"
    kinds = [row[b"k"] for _, row in await bench.redis.xrange(bench.key("ledger"))]
    assert kinds == [b"lost", b"correction"]


async def test_late_success_beats_its_unsent_repeat(bench: StoreBench) -> None:
    """While the repeat is not sent, the first answer counts, and the repeat is refused."""
    first = await lost(bench)
    repeat = await bench.take(worker="w:2")
    assert (await bench.settle(first)).verdict == "settled"
    assert await bench.state(first.id) == "succeeded"
    assert await bench.send(repeat) == [False]
    assert (await bench.settle(repeat)).verdict == "fenced"


async def test_late_answer_after_the_repeat_was_sent_is_booked(bench: StoreBench) -> None:
    """P23: both calls are in the ledger; what was assumed of the first is corrected."""
    first = await lost(bench)
    repeat = await bench.take(worker="w:2")
    await bench.send(repeat)
    assert (await bench.settle(first)).verdict == "fenced"
    assert (await bench.settle(repeat)).verdict == "settled"
    kinds = [row[b"k"] for _, row in await bench.redis.xrange(bench.key("ledger"))]
    assert kinds == [b"lost", b"correction", b"call"]


async def test_long_job_starts_once(bench: StoreBench) -> None:
    """Q5, Q11: a call longer than its lease is renewed, never handed out twice."""
    await bench.enqueue()
    grant = await bench.take()
    await bench.send(grant)
    for _ in range(20):
        await bench.advance(3)
        assert not (await beat(bench, **{grant.id: grant.fence})).lost
        assert not (await bench.claim(worker="w:2")).grants
    assert (await bench.settle(grant)).verdict == "settled"


async def test_every_claim_reclaims(bench: StoreBench) -> None:
    """Q8: no janitor: a claim alone brings back what a dead worker held."""
    await bench.enqueue()
    grant = await bench.take()
    again: list[str] = []
    for _ in range(4):
        await bench.advance(LEASE_SECONDS / 3)
        again += [g.id for g in (await bench.claim(worker="w:2")).grants]
    assert again == [grant.id]


async def test_an_outage_sends_nobody_to_review(bench: StoreBench) -> None:
    """Q37: Redis was away longer than a lease: workers get one lease to renew first."""
    await bench.enqueue(1, worst_nano_usd=10**9)
    grant = await bench.take()
    await bench.send(grant)
    await bench.advance(60, outage=True)
    await bench.store.snapshot(bench.queue, horizon_seconds=0)
    assert await bench.state(grant.id) == "sent"
    await beat(bench, **{grant.id: grant.fence})
    await after_lease(bench)
    assert await bench.state(grant.id) == "review"


async def test_poison_job_dies_and_neighbours_live(bench: StoreBench) -> None:
    """Q10: a job whose process dies each time is dead after three starts, its neighbours run."""
    poison, neighbour = await bench.enqueue(2)
    for n in range(3):
        reply = await bench.claim(2, worker=f"w{n}:1")
        assert poison in [g.id for g in reply.grants]
        for grant in reply.grants:
            if grant.id != poison:
                await bench.send(grant)
                await bench.settle(grant)
        await after_lease(bench)
    job = await bench.store.job(poison)
    assert job.state is JobState.DEAD
    assert job.error
    assert "died 3 times" in job.error["reason"]
    assert await bench.state(neighbour) == "succeeded"


async def test_one_suspect_per_process(bench: StoreBench) -> None:
    """A process never holds two jobs that crashed before, but others go past them."""
    await bench.enqueue(3)
    await bench.warm()
    assert len((await bench.claim(2)).grants) == 2
    await after_lease(bench)
    reply = await bench.claim(3, worker="w:2")
    assert [g.crashes for g in reply.grants] == [1, 0], reply
    assert not (await bench.claim(1, worker="w:2", clean=False)).grants
    assert [g.crashes for g in (await bench.claim(1, worker="w:3")).grants] == [1]


async def test_terminal_states_never_change(bench: StoreBench) -> None:
    """Q16: reclaim, cancel and repeated settles leave an ended job alone."""
    await bench.enqueue()
    grant = await bench.run_one()
    await after_lease(bench)
    assert await bench.store.cancel(grant.id) is JobState.SUCCEEDED
    assert (await bench.settle(grant, OutcomeClass.PERMANENT)).verdict == "repeated"
    assert await bench.state(grant.id) == "succeeded"


async def test_settle_is_idempotent(bench: StoreBench) -> None:
    """Q2, Q40: a settle that is repeated changes nothing and books nothing."""
    await bench.enqueue()
    grant = await bench.take()
    await bench.send(grant)
    answers = [await bench.settle(grant) for _ in range(3)]
    assert [a.verdict for a in answers] == ["settled", "repeated", "repeated"]
    assert len(await bench.redis.xrange(bench.key("ledger"))) == 1
    assert (await bench.states()) == {"succeeded": 1}


# ---------------------------------------------------------------- sent


async def test_sent_answers_a_repeat_alike(bench: StoreBench) -> None:
    await bench.enqueue()
    grant = await bench.take()
    assert await bench.send(grant) == [True]
    assert await bench.send(grant) == [True]


async def test_sent_is_refused_under_a_drain_mark(bench: StoreBench) -> None:
    """Q3, S3: claimed, then marked: the call is not sent, the job is free at no cost."""
    await bench.configure(budget={"limits": (Limit(LimitUnit.REQUESTS, 1000),)})
    await bench.enqueue()
    await beat(bench)
    grant = await bench.take()
    assert await bench.store.mark_drain(bench.queue, ["w:1"], seconds=30) == {"w:1": 1}
    reply = await bench.store.mark_sent(bench.queue, [(grant.id, grant.fence)], credential="")
    assert reply[0].reason is RefusalReason.DRAINING
    snapshot = await bench.store.snapshot(bench.queue, horizon_seconds=0)
    assert snapshot.win_levels == {"requests/60": 0}
    assert (await bench.claim()).reason is WaitReason.DRAINING
    assert (await bench.take(worker="w:2")).id == grant.id


async def test_draining_one_of_three_leaves_the_others_alone(bench: StoreBench) -> None:
    """Q9: the marked one is handed nothing and finishes its call; the other two go on claiming."""
    await bench.enqueue(12)
    await bench.warm()
    workers = ["w:1", "w:2", "w:3"]
    running = {name: await bench.take(worker=name) for name in workers}
    await bench.send(*running.values())
    await bench.store.mark_drain(bench.queue, ["w:1"], seconds=30)
    for _ in range(3):
        refused = await bench.claim(4, worker="w:1")
        assert (refused.grants, refused.reason) == ((), WaitReason.DRAINING)
        for name in workers[1:]:
            assert len((await bench.claim(1, worker=name)).grants) == 1
    assert (await bench.settle(running["w:1"])).verdict == "settled"
    assert await bench.states() == {"succeeded": 1, "sent": 2, "leased": 6, "ready": 3}


async def test_drain_marks_lapse(bench: StoreBench) -> None:
    """An operator that dies lets its marks lapse; lifting one works at once."""
    await bench.enqueue(2)
    await beat(bench)
    await bench.store.mark_drain(bench.queue, ["w:1"], seconds=30)
    assert (await beat(bench)).draining
    await bench.store.unmark_drain(bench.queue, ["w:1"])
    assert (await bench.claim()).grants
    await bench.store.mark_drain(bench.queue, ["w:1"], seconds=4)
    await bench.advance(4.1)
    assert not (await beat(bench)).draining
    assert (await bench.claim()).grants


async def test_time_with_the_provider_has_no_waits_in_it(bench: StoreBench) -> None:
    """S19: a job that waited for a minute held a slot for five seconds."""
    await bench.enqueue()
    await bench.advance(60)
    grant = await bench.take()
    assert await bench.send(grant) == [True]
    await bench.advance(5)
    await bench.settle(grant)
    await bench.advance(60)
    (queue,) = (await bench.store.snapshot(bench.queue, horizon_seconds=0)).queues
    assert queue.busy_ms == pytest.approx(5000, abs=500)
    assert queue.grants == 1
