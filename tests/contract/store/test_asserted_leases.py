"""A failover loses what came last; the workers' heartbeats bring their leases back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from llmqueue.config import Limit, TenantLimits
from llmqueue.errors import StoreUnavailable
from llmqueue.outcome import Usage
from llmqueue.states import JobState, LimitUnit, OutcomeClass
from llmqueue.store.calls_part import WAITING_RESULT
from support.handlerbench import acquire, end_run, finish, ledger
from support.meterbench import meters
from support.storebench import StoreBench, after_lease, assert_leases, drain_queue


@dataclass
class Replica:
    """What a replica had when its primary died: the budget's keys at one moment."""

    bench: StoreBench
    kept: dict[bytes, bytes]

    @classmethod
    async def of(cls, bench: StoreBench) -> Replica:
        return cls(bench, {key: await bench.redis.dump(key) for key in await _keys(bench)})

    async def promote(self) -> None:
        """Everything since that moment is gone."""
        redis = self.bench.redis
        for key in await _keys(self.bench):
            await redis.delete(key)
        for key, value in self.kept.items():
            await redis.restore(key, 0, value)


async def _keys(bench: StoreBench) -> list[bytes]:
    pattern = bench.key("*").replace("{", "\\{")
    return [key async for key in bench.redis.scan_iter(match=pattern, count=1000)]


async def level(bench: StoreBench) -> int:
    """Requests in the window."""
    snapshot = await bench.store.snapshot(bench.budget.budget, horizon_seconds=0)
    return snapshot.win_levels["requests/60"]


@pytest.fixture
async def limited(bench: StoreBench) -> StoreBench:
    await bench.configure(budget={"limits": (Limit(LimitUnit.REQUESTS, 600),)})
    await bench.warm()
    return bench


@pytest.mark.parametrize("sent", [None, 0.0, 7.0], ids=["unsent", "just sent", "sent 7 s ago"])
@pytest.mark.parametrize("where", ["lane", "front", "delayed"])
async def test_a_lost_claim_is_taken_back(
    limited: StoreBench, where: str, sent: float | None
) -> None:
    """Q39: the job waits on the new primary and runs at a worker: it is leased again, charged
    again, handed out to nobody else, and its settlement counts."""
    bench = limited
    (job,) = await bench.enqueue()
    if where == "front":
        grant = await bench.take()
        await bench.store.release(bench.queue, [(job, grant.fence)])
    elif where == "delayed":
        await bench.run_one(OutcomeClass.TRANSIENT)
    replica = await Replica.of(bench)
    await bench.advance(20)
    grant = await bench.take()
    if sent is not None:
        assert await bench.send(grant) == [True]
    await replica.promote()
    before = await level(bench)

    reply = await assert_leases(bench, grant, sent_seconds=sent)

    assert not reply.lost
    assert await bench.states() == {"leased" if sent is None else "sent": 1}
    assert await level(bench) == before + 1
    assert not (await bench.claim()).grants
    assert await bench.send(grant) == [True]
    assert (await bench.settle(grant)).verdict == "settled"
    assert await bench.states() == {"succeeded": 1}
    await bench.enqueue(2)
    await bench.advance(5)
    assert job not in await drain_queue(bench)


async def test_a_lost_mark_of_sent_is_restored(bench: StoreBench) -> None:
    """The claim is there, the mark is not: a crash from now on must not repeat a paid call."""
    await bench.enqueue(worst_nano_usd=10**12)
    grant = await bench.take()
    replica = await Replica.of(bench)
    assert await bench.send(grant) == [True]
    await replica.promote()
    assert await bench.state(grant.id) == "leased"
    await assert_leases(bench, grant, sent_seconds=1.0)
    assert await bench.state(grant.id) == "sent"
    await after_lease(bench)
    assert await bench.state(grant.id) == "review"


async def test_an_older_lease_that_nobody_holds_gives_way(bench: StoreBench) -> None:
    """The release of an earlier lease was lost together with the claim that followed."""
    await bench.enqueue()
    older = await bench.take()
    replica = await Replica.of(bench)
    await bench.store.release(bench.queue, [(older.id, older.fence)])
    newer = await bench.take()
    await replica.promote()
    assert not (await assert_leases(bench, newer)).lost
    assert await bench.send(newer) == [True]
    assert await bench.send(older) == [False]


async def test_a_live_lease_of_another_worker_stays(bench: StoreBench) -> None:
    await bench.enqueue()
    lost = await bench.take(worker="a:1")
    await after_lease(bench)
    await bench.redis.delete(bench.key("gb", lost.fence))  # as if long ago
    live = await bench.take(worker="b:1")
    assert (await assert_leases(bench, lost, worker="a:1")).lost == {lost.id}
    assert await bench.send(live) == [True]


@pytest.mark.parametrize("kind", [None, *(k for k in OutcomeClass)], ids=str)
async def test_a_lease_that_ended_stays_ended(bench: StoreBench, kind: OutcomeClass | None) -> None:
    """A heartbeat that was on its way while its lease ended brings nothing back."""
    await bench.enqueue()
    grant = await bench.take()
    if kind is None:
        await bench.store.release(bench.queue, [(grant.id, grant.fence)])
    else:
        assert await bench.send(grant) == [True]
        await bench.settle(grant, kind, usage=Usage(1, 1))
    before = await bench.states()
    reply = await assert_leases(bench, grant, sent_seconds=0.5)
    assert reply.lost | reply.cancelled == {grant.id}
    assert await bench.states() == before


async def test_a_reclaimed_lease_stays_lost(bench: StoreBench) -> None:
    """Its worker hung and was counted as crashed: the job may be on its way elsewhere."""
    await bench.enqueue()
    grant = await bench.take()
    await after_lease(bench)
    assert (await assert_leases(bench, grant)).lost == {grant.id}


async def test_a_job_that_is_taken_back_and_given_back_runs_once(bench: StoreBench) -> None:
    """Its entry stayed in the ready list meanwhile: it is no second one."""
    ids = await bench.enqueue(3)
    replica = await Replica.of(bench)
    grant = await bench.take()
    await replica.promote()
    await assert_leases(bench, grant)
    await bench.store.release(bench.queue, [(grant.id, grant.fence)])
    assert await bench.states() == {"ready": 3}
    ready = await bench.store.jobs(bench.queue, JobState.READY)
    assert sorted(job.id for job in ready) == sorted(ids)
    assert sorted(await drain_queue(bench)) == sorted(ids)


async def test_the_entry_of_a_job_that_is_taken_back_blocks_nobody(bench: StoreBench) -> None:
    await bench.warm()
    ids = await bench.enqueue(3)
    replica = await Replica.of(bench)
    grant = await bench.take()
    await replica.promote()
    await assert_leases(bench, grant)
    await bench.warm()
    assert sorted(await drain_queue(bench)) == sorted(set(ids) - {grant.id})
    await bench.store.release(bench.queue, [(grant.id, grant.fence)])
    assert await drain_queue(bench) == [grant.id]


async def test_a_lost_job_is_lost(bench: StoreBench) -> None:
    """What was never replicated cannot be leased; its paid call reaches the ledger all the same."""
    replica = await Replica.of(bench)
    await bench.enqueue()
    grant = await bench.take()
    assert await bench.send(grant) == [True]
    await replica.promote()
    assert (await assert_leases(bench, grant, sent_seconds=1.0)).lost == {grant.id}
    assert (await bench.settle(grant)).verdict == "fenced"
    rows: list[Any] = await bench.redis.xrange(bench.key("ledger"))
    assert [row[b"k"] for _, row in rows] == [b"extra"]


async def test_a_second_payment_is_told(bench: StoreBench) -> None:
    """Q40: settled before its worker's heartbeat came: the job runs again, and says why."""
    await bench.enqueue()
    replica = await Replica.of(bench)
    grant = await bench.take()
    await bench.send(grant)
    await replica.promote()
    assert (await bench.settle(grant)).verdict == "fenced"
    assert (await bench.take()).possible_duplicate


async def test_a_large_result_is_written_again(bench: StoreBench) -> None:
    """Q40: the result went to the old primary, its settlement to the new one: nothing is booked, and
    the repeat brings both."""
    await bench.enqueue()
    grant = await bench.take()
    await bench.send(grant)
    store, large = bench.store, b"r" * 100_000

    async def nowhere(*_: Any) -> bytes:
        return WAITING_RESULT

    kept, store._inline = store._inline, nowhere  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailable, match="settle again"):
        await bench.settle(grant, usage=Usage(1, 1), result=large)
    assert await bench.state(grant.id) == "sent"
    store._inline = kept  # type: ignore[method-assign]
    assert (await bench.settle(grant, usage=Usage(1, 1), result=large)).verdict == "settled"
    assert (await store.job(grant.id)).result == large


async def test_a_large_answer_of_a_call_is_written_again(bench: StoreBench) -> None:
    """Q40: the answer went to the old primary, its record to the new one: nothing is booked, and
    the repeat brings both. A paid answer that the journal misses would be paid again."""
    await bench.enqueue(handler="h")
    grant = await bench.take()
    await acquire(bench, grant)
    await bench.send(grant)
    store, large = bench.store, b"r" * 100_000

    async def nowhere(*_: Any) -> bytes:
        return WAITING_RESULT

    kept, store._inline = store._inline, nowhere  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailable, match="finish it again"):
        await finish(bench, grant, answer=large)
    assert await bench.state(grant.id) == "sent"
    store._inline = kept  # type: ignore[method-assign]
    assert await finish(bench, grant, answer=large)
    assert (await store.journal(bench.queue, grant.id)).answers == {"n1": large}
    assert len(await ledger(bench)) == 1


async def test_a_failure_job_that_is_taken_back_charges_nothing(limited: StoreBench) -> None:
    bench = limited
    await bench.configure(queue={"handlers": True})
    await bench.enqueue(handler="h")
    await end_run(bench, await bench.take(), kind=OutcomeClass.PERMANENT, message="no")
    replica = await Replica.of(bench)
    failure = await bench.take()
    await replica.promote()
    before = await level(bench)
    assert not (await assert_leases(bench, failure)).lost
    assert await level(bench) == before
    assert await end_run(bench, failure) == "succeeded"


async def test_a_lease_that_is_taken_back_is_paid_by_its_tenant(bench: StoreBench) -> None:
    """Its call counts on the new primary, too: else the tenant had one more than its rate."""
    await bench.configure(queue={"per_tenant": TenantLimits(requests_per_second=1, burst=1)})
    await bench.warm()
    await bench.enqueue(4, tenant="a")
    replica = await Replica.of(bench)
    grant = await bench.take()
    await replica.promote()
    await assert_leases(bench, grant)
    assert (await bench.claim(4)).grants == ()
    await bench.advance(1)
    assert len((await bench.claim(4)).grants) == 1


async def test_a_call_older_than_a_window_gives_that_nothing(bench: StoreBench) -> None:
    """It was not charged there when it came back: what it used less than it reserved is not, too."""
    limits = (Limit(LimitUnit.TOKENS, 10_000), Limit(LimitUnit.TOKENS, 10**7, 600))
    await bench.configure(budget={"limits": limits, "token_accounting": "correct"})
    await bench.warm()
    await bench.enqueue(2, tokens=(10, 1000))
    replica = await Replica.of(bench)
    grant = await bench.take()
    await bench.send(grant)
    await replica.promote()
    await bench.advance(5)
    await assert_leases(bench, grant, sent_seconds=70.0)
    other = await bench.take()
    await bench.settle(grant, usage=Usage(10, 20))
    levels = (await bench.store.snapshot(bench.queue, horizon_seconds=0)).win_levels
    assert other.id != grant.id
    assert levels["tokens/60"] == 1000
    assert levels["tokens/600"] > 1000


async def test_a_claim_that_was_lost_is_counted_with_its_lease(bench: StoreBench) -> None:
    await bench.enqueue(2)
    replica = await Replica.of(bench)
    grant = await bench.take()
    await replica.promote()
    await assert_leases(bench, grant)
    assert (await meters(bench)).granted == 1
