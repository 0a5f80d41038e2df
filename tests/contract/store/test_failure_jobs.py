"""Failure jobs: made once with the failure, free of budget, and ordinary in all else."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from llmqueue.config import BreakerPolicy, Limit, Retention
from llmqueue.states import JobState, LimitUnit, OutcomeClass, WaitReason
from llmqueue.store.port import Grant
from support.handlerbench import acquire, end_run, queue_facts
from support.storebench import StoreBench, after_lease, beat, drain_queue

FAILURE = "\x01failure"


@pytest.fixture
async def bench(bench: StoreBench) -> StoreBench:
    await bench.configure(queue={"handlers": True})
    return bench


async def die(bench: StoreBench, **fields: Any) -> Grant:
    await bench.enqueue(**({"handler": "h", "tenant": "t1", "feature": "f1"} | fields))
    grant = await bench.take()
    message = "the user's record is gone"
    assert await end_run(bench, grant, kind=OutcomeClass.PERMANENT, message=message) == "dead"
    return grant


def event(grant: Grant) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(grant.payload.partition(b"\n")[0])
    return found


async def test_a_dead_job_makes_one(bench: StoreBench) -> None:
    dead = await die(bench, payload=b'{"document":"x"}')
    failure = await bench.take()
    assert (failure.id, failure.handler) == (f"{dead.id}.f1", FAILURE)
    assert (failure.tenant, failure.feature) == ("t1", "f1")
    assert event(failure) == {
        "event_id": failure.id, "job_id": dead.id, "queue": bench.queue, "handler": "h",
        "tenant": "t1", "feature": "f1", "state": "dead", "outcome": "PERMANENT",
        "message": "the user's record is gone", "attempts": 1,
    }  # fmt: skip
    assert failure.payload.partition(b"\n")[2] == b'{"document":"x"}'
    assert await end_run(bench, failure, result=b"null") == "succeeded"
    view = await bench.store.job(failure.id)
    assert (view.state, view.queue) == (JobState.SUCCEEDED, bench.queue)
    assert (await bench.claim()).reason is WaitReason.EMPTY


async def test_payload_jobs_of_the_queue_make_one_too(bench: StoreBench) -> None:
    await bench.enqueue(payload=b"\x00\xff no JSON\n at all")
    grant = await bench.take()
    await bench.send(grant)
    await bench.settle(grant, OutcomeClass.PERMANENT, message="no such model")
    failure = await bench.take()
    assert (event(failure)["handler"], event(failure)["message"]) == ("", "no such model")
    assert failure.payload.partition(b"\n")[2] == b"\x00\xff no JSON\n at all"


async def test_without_handlers_there_is_none(bench: StoreBench) -> None:
    await bench.configure(queue={"handlers": False})
    await die(bench)
    assert await bench.states() == {"dead": 1}


async def test_a_review_makes_one(bench: StoreBench) -> None:
    await bench.enqueue(handler="h")
    grant = await bench.take()
    await acquire(bench, grant, worst_nano_usd=900_000_000)
    await bench.send(grant)
    await bench.settle(grant, OutcomeClass.UNKNOWN, message="no complete answer")
    failure = await bench.take()
    found = event(failure)
    assert (found["state"], found["outcome"], found["message"]) == (
        "review", "UNKNOWN", "no complete answer",
    )  # fmt: skip


async def test_each_new_failure_is_an_event_of_its_own(bench: StoreBench) -> None:
    await bench.enqueue(handler="h")
    grant = await bench.take()
    await acquire(bench, grant, worst_nano_usd=900_000_000)
    await bench.send(grant)
    await after_lease(bench)
    await beat(bench, **{grant.id: grant.fence})
    await bench.settle(grant, OutcomeClass.PERMANENT)
    failures = [grant.id for grant in (await bench.claim(4)).grants]
    assert failures == [f"{grant.id}.f1", f"{grant.id}.f2"]


async def test_an_end_of_its_own_has_its_own_words(bench: StoreBench) -> None:
    """A poison job: what its last record says is of an earlier run."""
    await bench.enqueue(handler="h")
    grant = await bench.take()
    await end_run(bench, grant, kind=OutcomeClass.TRANSIENT, message="an earlier error")
    await bench.advance(40)
    for _ in range(3):
        await bench.take()
        await after_lease(bench)
    found = event(await bench.take())
    assert (found["outcome"], found["message"]) == ("", "its worker process died 3 times")


async def test_a_failure_that_fails_is_retried_and_reported_no_further(bench: StoreBench) -> None:
    await die(bench)
    runs = 0
    while runs < 10 and (reply := await bench.claim()).grants:
        (failure,) = reply.grants
        runs += 1
        await end_run(bench, failure, kind=OutcomeClass.TRANSIENT, message="ValueError")
        for _ in range(12):
            await bench.advance(4)
            await bench.store.snapshot(bench.budget.budget, horizon_seconds=0)
    assert runs == 4, "the transient schedule: 3 retries"
    assert await bench.states() == {"dead": 2}


async def test_a_crash_gives_it_back(bench: StoreBench) -> None:
    await die(bench)
    first = await bench.take()
    await after_lease(bench)
    second = await bench.take(worker="w:2")
    assert (second.id, second.crashes) == (first.id, 1)
    assert await end_run(bench, second) == "succeeded"
    assert str((await bench.settle(first, sent=False, own=True)).verdict) == "fenced"


# ---------------------------------------------------------------- free of budget


async def _limited(bench: StoreBench) -> None:
    await bench.configure(budget={"limits": (Limit(LimitUnit.REQUESTS, 1),)})
    await bench.warm()
    await bench.run_one()


async def _blocked(bench: StoreBench) -> None:
    await bench.run_one(OutcomeClass.RATE, retry_after_seconds=60)


async def _paused(bench: StoreBench) -> None:
    await bench.run_one(OutcomeClass.AUTH)


async def _broken(bench: StoreBench) -> None:
    await bench.configure(budget={"breaker": BreakerPolicy(failures=1)})
    await bench.run_one(OutcomeClass.OVERLOAD)


async def _full(bench: StoreBench) -> None:
    await bench.configure(budget={"max_in_flight": 1})
    await bench.take()


@pytest.mark.parametrize(
    ("trouble", "reason"),
    [
        (_limited, "requests"),
        (_blocked, "blocked"),
        (_paused, "paused"),
        (_broken, "breaker"),
        (_full, "in-flight"),
    ],
    ids=["limited", "blocked", "paused", "breaker", "in flight"],
)
async def test_it_runs_while_nothing_else_may(bench: StoreBench, trouble: Any, reason: str) -> None:
    dead = await die(bench)
    await bench.enqueue(3)
    failure = (await bench.store.jobs(bench.queue, JobState.READY))[0]
    # The trouble's own job must not be the failure job: it is put aside meanwhile.
    await bench.redis.zrem(bench.key("free", bench.queue), f"{dead.id}.f1")
    await trouble(bench)
    await bench.redis.zadd(bench.key("free", bench.queue), {f"{dead.id}.f1": 1})
    reply = await bench.claim(2)
    assert [grant.id for grant in reply.grants] == [f"{dead.id}.f1"], reply
    assert (str(reply.reason), failure.id) == (reason, f"{dead.id}.f1")
    facts = await queue_facts(bench)
    assert await end_run(bench, reply.grants[0]) == "succeeded"
    after = await queue_facts(bench)
    for name in ("grants", "ch:requests", "ch:tokens"):
        assert facts.get(name, 0) == after.get(name, 0)


async def test_it_does_not_run_while_suspended_or_draining(bench: StoreBench) -> None:
    await die(bench)
    await bench.store.set_suspended(bench.queue, True)
    assert (await bench.claim()).reason is WaitReason.SUSPENDED
    await bench.store.set_suspended(bench.queue, False)
    await beat(bench)
    await bench.store.mark_drain(bench.queue, ["w:1"], seconds=60)
    assert (await bench.claim()).reason is WaitReason.DRAINING
    assert (await bench.claim(worker="w:2")).grants


async def test_one_that_runs_takes_no_place_of_a_call(bench: StoreBench) -> None:
    await bench.configure(budget={"max_in_flight": 1})
    await die(bench)
    await bench.enqueue()
    assert len((await bench.claim(2)).grants) == 2
    assert (await queue_facts(bench))["held_failures"] == 1


async def test_suspects_wait_for_a_clean_process(bench: StoreBench) -> None:
    await die(bench)
    await bench.take()
    await after_lease(bench)
    assert not (await bench.claim(clean=False)).grants
    assert (await bench.claim(clean=True)).grants


async def test_cancel_and_retention(bench: StoreBench) -> None:
    """Q43: nothing is left of either job."""
    await bench.configure(queue={"retention": Retention(5, 5), "idempotency_seconds": 5})
    dead = await die(bench)
    await bench.store.cancel(f"{dead.id}.f1")
    assert (await bench.claim()).reason is WaitReason.EMPTY
    await bench.advance(130)
    await bench.store.snapshot(bench.budget.budget, horizon_seconds=0)
    assert [key async for key in bench.redis.scan_iter(match="*" + dead.id + "*")] == []
    assert (await queue_facts(bench)).get("free", 0) == 0
    assert (await queue_facts(bench))["bytes"] == 0


async def test_readers_see_those_that_wait(bench: StoreBench) -> None:
    dead = await die(bench)
    assert await bench.states() == {"ready": 1, "dead": 1}
    assert [job.id for job in await bench.store.jobs(bench.queue, JobState.READY)] == [
        f"{dead.id}.f1"
    ]
    snapshot = await bench.store.snapshot(bench.budget.budget, horizon_seconds=0)
    assert snapshot.queues[0].states[JobState.READY] == 1


async def test_exactly_once_over_200_kills(bench: StoreBench) -> None:
    """Workers die at random moments of jobs that fail: each failure is reported once."""
    rng = random.Random(7)
    ids = await bench.enqueue(60, handler="h")
    kills = 0
    while kills < 200 or (await bench.states()).keys() - {"dead", "succeeded"}:
        worker = f"w:{kills}"
        for grant in (await bench.claim(8, worker=worker)).grants:
            if kills < 200 and rng.random() < 0.5:
                kills += 1
                continue
            if grant.handler == FAILURE:
                await end_run(bench, grant)
                continue
            reply = await bench.settle(grant, OutcomeClass.PERMANENT, sent=False, own=True)
            if rng.random() < 0.3:
                again = await bench.settle(grant, OutcomeClass.PERMANENT, sent=False, own=True)
                assert again.verdict == "repeated"
            assert str(reply.state) == "dead"
        await after_lease(bench)
        if kills < 200 and not (await bench.states()).keys() - {"dead", "succeeded"}:
            ids += await bench.enqueue(20, handler="h")
    await drain_queue(bench)
    failures = [
        key.decode().rpartition(":")[2]
        async for key in bench.redis.scan_iter(match="*j:*.f*", count=1000)
    ]
    assert sorted(failures) == sorted(f"{job}.f1" for job in ids)
