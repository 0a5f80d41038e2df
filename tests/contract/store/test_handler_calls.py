"""Handler jobs in the store: charges of their calls, journal, ledger, and what a crash leaves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from llmqueue.config import (
    BreakerPolicy,
    Limit,
    Retention,
    RetryPolicy,
    Schedule,
    UnknownOutcomePolicy,
)
from llmqueue.outcome import Usage
from llmqueue.states import LimitUnit, OutcomeClass, WaitReason
from llmqueue.store.port import Grant
from support.handlerbench import acquire, end_run, finish, ledger, make_call, queue_facts
from support.storebench import StoreBench, beat

REQUESTS_10 = (Limit(LimitUnit.REQUESTS, 10),)
TOKENS_1000 = (Limit(LimitUnit.TOKENS, 1000),)
BOUNDED = (Limit(LimitUnit.REQUESTS, 3, 20), Limit(LimitUnit.TOKENS, 1000, 20))


async def start(bench: StoreBench, **fields: Any) -> Grant:
    await bench.enqueue(handler="h", **fields)
    return await bench.take()


async def levels(bench: StoreBench) -> dict[str, int]:
    snapshot = await bench.store.snapshot(bench.budget.budget, horizon_seconds=0)
    return dict(snapshot.win_levels)


async def keys_of(bench: StoreBench, job: str) -> set[str]:
    found = [key async for key in bench.redis.scan_iter(match="*" + job + "*")]
    return {key.decode().rpartition("}:")[2].replace(job, "ID") for key in found}


# ---------------------------------------------------------------- charges


async def test_a_grant_names_its_handler(bench: StoreBench) -> None:
    grant = await start(bench)
    assert (grant.handler, grant.journaled) == ("h", False)
    await bench.enqueue()
    assert (await bench.take()).handler == ""


async def test_the_first_call_takes_the_place_of_what_the_claim_charged(bench: StoreBench) -> None:
    await bench.configure(budget={"limits": TOKENS_1000})
    await bench.warm()
    grant = await start(bench, tokens=(10, 400))
    assert await levels(bench) == {"tokens/60": 400}
    before = await queue_facts(bench)
    reply = await acquire(bench, grant, tokens=(30, 90))
    assert (reply.verdict, reply.input_tokens, reply.output_tokens) == ("granted", 30, 90)
    assert await levels(bench) == {"tokens/60": 90}
    after = await queue_facts(bench)
    assert after["grants"] == before["grants"] == 1
    assert (after["ch:requests"], after["ch:tokens"]) == (1, 90)


async def test_each_further_call_is_charged(bench: StoreBench) -> None:
    await bench.configure(budget={"limits": REQUESTS_10})
    await bench.warm()
    grant = await start(bench)
    for number in (1, 2, 3):
        await bench.advance(10)
        await beat(bench, **{grant.id: grant.fence})
        assert await make_call(bench, grant, number)
        assert await levels(bench) == {"requests/60": number}
    assert (await queue_facts(bench))["grants"] == 3
    assert await end_run(bench, grant) == "succeeded"
    assert await levels(bench) == {"requests/60": 3}


async def test_a_handler_without_calls_costs_nothing(bench: StoreBench) -> None:
    await bench.configure(budget={"limits": REQUESTS_10})
    await bench.warm()
    grant = await start(bench)
    assert await levels(bench) == {"requests/60": 1}
    assert await end_run(bench, grant) == "succeeded"
    assert await levels(bench) == {"requests/60": 0}
    assert await ledger(bench) == []
    assert (await queue_facts(bench))["grants"] == 0


async def test_a_call_that_has_to_wait_changes_nothing(bench: StoreBench) -> None:
    """Q21: requests free, tokens empty: requests level unchanged; and no window goes over."""
    await bench.configure(budget={"limits": BOUNDED})
    await bench.warm()
    grant = await start(bench, tokens=(10, 300))
    await bench.advance(5)
    await bench.enqueue(tokens=(10, 600))
    other = await bench.take(worker="w:2")
    await bench.send(other)
    before = await levels(bench)
    assert before == {"requests/20": 2, "tokens/20": 900}
    reply = await acquire(bench, grant, tokens=(10, 500))
    assert (reply.verdict, str(reply.reason), reply.limit) == ("wait", "tokens", "tokens/20")
    assert 0 < reply.wait_seconds <= 22
    assert await levels(bench) == before
    for _ in range(4):
        await bench.advance(6)
        await beat(bench, **{grant.id: grant.fence})
    assert (await acquire(bench, grant, tokens=(10, 500))).verdict == "granted"


async def test_waiting_calls_are_told_different_times(bench: StoreBench) -> None:
    """Q25: about one question a grant in all, whoever asks."""
    await bench.configure(budget={"limits": REQUESTS_10})
    await bench.warm()
    grants = [await start(bench) for _ in range(1)]
    await make_call(bench, grants[0], 1)
    first = await acquire(bench, grants[0], 2)
    await bench.enqueue()
    claim = await bench.claim()
    assert first.verdict == "wait"
    assert not claim.grants
    assert claim.wait_seconds > first.wait_seconds + 3
    again = await acquire(bench, grants[0], 2)
    assert again.wait_seconds <= first.wait_seconds, "it keeps its place"


async def test_the_time_of_waiting_is_no_slot_time(bench: StoreBench) -> None:
    await bench.configure(budget={"limits": REQUESTS_10})
    await bench.warm()
    grant = await start(bench)
    await make_call(bench, grant, 1)
    assert (await acquire(bench, grant, 2)).verdict == "wait"
    for _ in range(3):
        await bench.advance(3)
        await beat(bench, **{grant.id: grant.fence})
    assert (await acquire(bench, grant, 2)).verdict == "granted"
    await bench.store.snapshot(bench.budget.budget, horizon_seconds=0)
    assert (await queue_facts(bench))["busy"] < 1000


async def test_a_wait_is_taken_off_once(bench: StoreBench) -> None:
    """Whatever answer ended it: here, that the call is too large."""
    await bench.configure(budget={"limits": TOKENS_1000})
    await bench.warm()
    grant = await start(bench)
    await bench.redis.hset(bench.key("run"), "blk", await bench.now_ms() + 60_000)
    assert (await acquire(bench, grant, tokens=(10, 1001))).verdict == "wait"
    await bench.redis.hset(bench.key("run"), "blk", 0)
    assert (await acquire(bench, grant, tokens=(10, 1001))).verdict == "too-large"
    for _ in range(3):
        await bench.advance(3)
        await beat(bench, **{grant.id: grant.fence})
    await acquire(bench, grant, 2)
    await bench.store.snapshot(bench.budget.budget, horizon_seconds=0)
    assert (await queue_facts(bench))["busy"] >= 9000


async def test_a_wait_of_an_earlier_run_counts_no_more(bench: StoreBench) -> None:
    await bench.configure(budget={"limits": REQUESTS_10})
    await bench.warm()
    grant = await start(bench)
    await make_call(bench, grant, 1)
    assert (await acquire(bench, grant, 2)).verdict == "wait"
    await bench.store.release(bench.queue, [(grant.id, grant.fence)])
    before = (await queue_facts(bench))["busy"]
    await bench.advance(300)
    await acquire(bench, await bench.take(), 2)
    assert (await queue_facts(bench))["busy"] >= before


async def test_a_call_above_a_limit_never_waits(bench: StoreBench) -> None:
    await bench.configure(budget={"limits": TOKENS_1000})
    await bench.warm()
    grant = await start(bench)
    reply = await acquire(bench, grant, tokens=(10, 1001))
    assert (reply.verdict, reply.limit) == ("too-large", "tokens/60")
    assert await bench.state(grant.id) == "leased"


async def test_an_acquire_is_charged_once_however_often_it_is_repeated(bench: StoreBench) -> None:
    await bench.configure(budget={"limits": BOUNDED})
    await bench.warm()
    grant = await start(bench)
    for _ in range(5):
        await bench.advance(1)
        assert (await acquire(bench, grant)).verdict == "granted"
    assert await levels(bench) == {"requests/20": 1, "tokens/20": 100}


async def test_a_draining_worker_gets_no_call(bench: StoreBench) -> None:
    grant = await start(bench)
    await beat(bench, **{grant.id: grant.fence})
    await bench.store.mark_drain(bench.queue, ["w:1"], seconds=60)
    assert (await acquire(bench, grant)).verdict == "draining"
    await bench.store.release(bench.queue, [(grant.id, grant.fence)])
    job = await bench.store.job(grant.id)
    assert (str(job.state), job.attempts_used) == ("ready", 0)


async def test_a_suspended_queue_lets_running_handlers_go_on(bench: StoreBench) -> None:
    grant = await start(bench)
    await bench.store.set_suspended(bench.queue, True)
    assert (await acquire(bench, grant)).verdict == "granted"


async def test_a_block_holds_the_next_call(bench: StoreBench) -> None:
    await bench.enqueue()
    grant = await start(bench)
    other = await bench.take()
    await bench.send(grant if not grant.handler else other)
    await bench.settle(
        grant if not grant.handler else other, OutcomeClass.RATE, retry_after_seconds=7
    )
    reply = await acquire(bench, grant if grant.handler else other)
    assert (reply.verdict, str(reply.reason)) == ("wait", "blocked")
    assert 5 < reply.wait_seconds <= 8


async def test_a_call_probes_an_open_breaker(bench: StoreBench) -> None:
    """All slots may hold handlers that wait: one of their calls has to be the probe."""
    await bench.configure(budget={"breaker": BreakerPolicy(failures=1)})
    handlers = [await start(bench), await start(bench)]
    await bench.enqueue()
    broken = await bench.take()
    await bench.send(broken)
    await bench.settle(broken, OutcomeClass.TRANSIENT)
    assert str((await acquire(bench, handlers[0])).reason) == "breaker"
    leases = {grant.id: grant.fence for grant in handlers}
    for _ in range(20):
        await bench.advance(6.1)
        await beat(bench, **leases)
    assert (await acquire(bench, handlers[0])).verdict == "granted"
    assert str((await acquire(bench, handlers[1])).reason) == "breaker", "one probe at a time"
    assert await bench.send(handlers[0]) == [True]
    assert await finish(bench, handlers[0])
    await bench.advance(2)
    assert (await acquire(bench, handlers[1])).verdict == "granted"


async def test_a_call_probes_a_paused_credential(bench: StoreBench) -> None:
    handler = await start(bench)
    await bench.enqueue()
    refused = await bench.take(credential="k")
    await bench.send(refused, credential="k")
    await bench.settle(refused, OutcomeClass.AUTH, credential="k")
    reply = await acquire(bench, handler, credential="k")
    assert (reply.verdict, str(reply.reason)) == ("wait", "paused")
    await bench.store.resume(bench.queue)
    assert (await acquire(bench, handler, credential="k")).verdict == "granted"
    assert await bench.send(handler, credential="k") == [True]
    assert await finish(bench, handler, credential="k")
    snapshot = await bench.store.snapshot(bench.budget.budget, horizon_seconds=0)
    assert snapshot.pauses == ()


async def test_a_handlers_own_code_keeps_no_probe(bench: StoreBench) -> None:
    """Claimed as the probe, it does something else first: the credential is tried by another."""
    await bench.enqueue()
    refused = await bench.take(credential="k")
    await bench.send(refused, credential="k")
    await bench.settle(refused, OutcomeClass.AUTH, credential="k")
    await bench.store.cancel(refused.id)
    await bench.store.resume(bench.queue)
    await bench.enqueue(handler="h")
    handler = await bench.take(credential="k")
    assert handler.probe
    await bench.enqueue()
    for _ in range(3):
        assert (await bench.claim(credential="k")).reason is WaitReason.PAUSED
        await bench.advance(4)
        await beat(bench, **{handler.id: handler.fence})
    other = await bench.take(credential="k")
    assert other.probe
    assert str((await acquire(bench, handler, credential="k")).reason) == "paused"
    await bench.send(other, credential="k")
    await bench.settle(other, credential="k")
    await bench.advance(2)
    assert (await acquire(bench, handler, credential="k")).verdict == "granted"


async def test_own_code_that_ends_well_lifts_no_pause(bench: StoreBench) -> None:
    await bench.enqueue(handler="h")
    await bench.enqueue()
    refused = await bench.take(credential="k")
    while refused.handler:
        refused = await bench.take(credential="k")
    await bench.send(refused, credential="k")
    await bench.settle(refused, OutcomeClass.AUTH, credential="k")
    await bench.store.resume(bench.queue)
    probe = await bench.take(credential="k")
    await bench.settle(probe, sent=False, own=True, credential="k", result=b"1", usage=None)
    snapshot = await bench.store.snapshot(bench.budget.budget, horizon_seconds=0)
    assert len(snapshot.pauses) == 1
    assert not snapshot.pauses[0].probing


# ---------------------------------------------------------------- finished calls


async def test_ledger_and_attempts_name_each_call(bench: StoreBench) -> None:
    grant = await start(bench)
    for number in (1, 2):
        assert await make_call(bench, grant, number)
    assert await end_run(bench, grant, result=b'"done"') == "succeeded"
    assert [(row["call"], row["kind"]) for row in await ledger(bench)] == [(1, "call"), (2, "call")]
    job = await bench.store.job(grant.id)
    assert job.result == b'"done"'
    assert [(a.get("call"), a["class"]) for a in job.attempts] == [
        (1, "SUCCESS"), (2, "SUCCESS"), (None, "SUCCESS"),
    ]  # fmt: skip
    assert (job.cost_nano_usd, job.attempts_used) == (2000, 1)


@pytest.mark.parametrize("unpriced", [False, True])
async def test_the_cost_is_of_all_calls_however_many(bench: StoreBench, unpriced: bool) -> None:
    grant = await start(bench)
    for number in range(1, 61):
        await make_call(bench, grant, number, cost=None if unpriced and number == 3 else 1000)
    job = await bench.store.job(grant.id)
    assert len(job.attempts) == 50
    assert job.cost_nano_usd == (None if unpriced else 60_000)


async def test_a_repeated_report_books_nothing_twice(bench: StoreBench) -> None:
    grant = await start(bench)
    await make_call(bench, grant, 1)
    assert await finish(bench, grant, 1)
    assert len(await ledger(bench)) == 1
    await make_call(bench, grant, 2)
    assert await finish(bench, grant, 2)
    assert await finish(bench, grant, 1), "however late it comes"
    assert len(await ledger(bench)) == 2
    assert await bench.state(grant.id) == "leased"


async def test_usage_is_corrected_for_each_call(bench: StoreBench) -> None:
    await bench.configure(budget={"limits": TOKENS_1000, "token_accounting": "correct"})
    await bench.warm()
    grant = await start(bench, tokens=(10, 400))
    await acquire(bench, grant, tokens=(10, 400))
    await bench.send(grant)
    await finish(bench, grant, usage=Usage(10, 40))
    assert await levels(bench) == {"tokens/60": 40}


async def test_finished_calls_are_replayed_by_the_next_run(bench: StoreBench) -> None:
    grant = await start(bench)
    await make_call(bench, grant, 1, answer=b'{"first":1}')
    await make_call(bench, grant, 2, answer=b"x" * 200_000)
    await acquire(bench, grant, 3)
    await bench.store.release(bench.queue, [(grant.id, grant.fence)])
    again = await bench.take()
    assert (again.id, again.journaled) == (grant.id, True)
    journal = await bench.store.journal(bench.queue, again.id)
    assert journal.answers == {"n1": b'{"first":1}', "n2": b"x" * 200_000}
    assert journal.in_doubt == frozenset()


async def test_failed_calls_leave_no_journal(bench: StoreBench) -> None:
    grant = await start(bench)
    await acquire(bench, grant)
    await bench.send(grant)
    assert await finish(bench, grant, 1, OutcomeClass.PERMANENT)
    assert (await bench.store.journal(bench.queue, grant.id)).answers == {}
    assert [row["class"] for row in await ledger(bench)] == ["PERMANENT"]
    assert await bench.state(grant.id) == "leased"


async def test_nothing_is_left_of_a_forgotten_job(bench: StoreBench) -> None:
    """Q43: memory back to base within retention."""
    await bench.configure(
        queue={"retention": Retention(succeeded_seconds=5), "idempotency_seconds": 5}
    )
    grant = await start(bench)
    await make_call(bench, grant, 1)
    await make_call(bench, grant, 2, answer=b"y" * 100_000)
    await bench.store.progress(bench.queue, grant.id, grant.fence, fraction=0.5, message="half")
    assert await keys_of(bench, grant.id) == {"j:ID", "d:ID", "t:ID", "p:ID", "c:ID", "c:ID:n1", "c:ID:n2"}  # fmt: skip
    await end_run(bench, grant)
    await bench.advance(130)
    await bench.store.snapshot(bench.budget.budget, horizon_seconds=0)
    assert await keys_of(bench, grant.id) == set()


async def test_progress_of_a_lost_job_is_not_shown(bench: StoreBench) -> None:
    grant = await start(bench)
    await bench.store.progress(bench.queue, grant.id, "other", fraction=0.5, message="")
    assert "p:ID" not in await keys_of(bench, grant.id)


# ---------------------------------------------------------------- ends


async def test_a_rate_limit_in_a_call_returns_the_job_with_its_journal(bench: StoreBench) -> None:
    grant = await start(bench)
    await make_call(bench, grant, 1)
    await acquire(bench, grant, 2)
    await bench.send(grant)
    reply = await bench.settle(grant, OutcomeClass.RATE, retry_after_seconds=2)
    assert str(reply.state) == "ready"
    await bench.advance(5)
    again = await bench.take()
    assert (again.id, again.journaled) == (grant.id, True)
    assert (await bench.store.job(grant.id)).attempts_used == 0


async def test_own_errors_are_retried_by_the_transient_schedule(bench: StoreBench) -> None:
    await bench.configure(
        queue={"retry": replace(RetryPolicy(), transient=Schedule((3, 10), 3), jitter_percent=0)}
    )
    grant = await start(bench)
    for _ in range(2):
        assert await end_run(bench, grant, kind=OutcomeClass.TRANSIENT, message="x") == "delayed"
        await bench.advance(11)
        grant = await bench.take()
    assert await end_run(bench, grant, kind=OutcomeClass.TRANSIENT, message="x") == "dead"
    snapshot = await bench.store.snapshot(bench.budget.budget, horizon_seconds=0)
    assert (snapshot.answers, snapshot.breaker) == (0, "closed")


async def test_own_errors_use_attempts_while_the_breaker_is_open(bench: StoreBench) -> None:
    await bench.configure(budget={"breaker": BreakerPolicy(failures=1)})
    grant = await start(bench)
    await bench.enqueue()
    broken = await bench.take()
    await bench.send(broken)
    await bench.settle(broken, OutcomeClass.TRANSIENT)
    await end_run(bench, grant, kind=OutcomeClass.TRANSIENT)
    assert (await bench.store.job(grant.id)).attempts_used == 1


async def test_cancel_between_calls_ends_at_once(bench: StoreBench) -> None:
    """Q48"""
    grant = await start(bench)
    await make_call(bench, grant, 1)
    assert str(await bench.store.cancel(grant.id)) == "cancelled"
    assert (await acquire(bench, grant, 2)).verdict == "lost"
    assert (await beat(bench, **{grant.id: grant.fence})).cancelled == {grant.id}


async def test_cancel_in_a_call_ends_when_the_call_does(bench: StoreBench) -> None:
    """Q48: the answer that came first is booked, and the job is cancelled."""
    grant = await start(bench)
    await acquire(bench, grant)
    await bench.send(grant)
    assert str(await bench.store.cancel(grant.id)) == "sent"
    assert not await finish(bench, grant)
    assert await bench.state(grant.id) == "cancelled"
    assert len(await ledger(bench)) == 1
    assert await bench.redis.zcard(bench.key("leases", bench.queue)) == 0


async def test_a_deadline_in_a_call_ends_the_job_after_it(bench: StoreBench) -> None:
    grant = await start(bench, deadline_seconds=3)
    await acquire(bench, grant)
    await bench.send(grant)
    await bench.advance(4)
    await bench.store.snapshot(bench.budget.budget, horizon_seconds=0)
    assert not await finish(bench, grant)
    assert await bench.state(grant.id) == "expired"


async def test_nothing_leaves_without_an_acquired_call(bench: StoreBench) -> None:
    grant = await start(bench)
    await make_call(bench, grant, 1)
    assert await bench.send(grant) == [False]
    assert await bench.state(grant.id) == "ready"


async def test_the_policy_for_unknown_outcomes_holds_for_a_call(bench: StoreBench) -> None:
    await bench.configure(
        queue={"retry": RetryPolicy(unknown_outcome=UnknownOutcomePolicy(policy="Fail"))}
    )
    grant = await start(bench)
    await acquire(bench, grant)
    await bench.send(grant)
    assert str((await bench.settle(grant, OutcomeClass.UNKNOWN)).state) == "dead"
