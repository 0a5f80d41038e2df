"""Batches: counters that only ends change, followers that are stored exactly once."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from llmqueue.batch import BatchView, Follower, NewBatch
from llmqueue.config import Retention
from llmqueue.errors import BatchConflict, UnknownBatch, UnknownQueue
from llmqueue.job import NewJob
from llmqueue.states import JobState, OutcomeClass
from llmqueue.store import keys
from support.storebench import StoreBench, after_lease, beat, drain_queue

BUDGET = "default/q"


class Followed:
    """An open batch whose three followers are known by id."""

    def __init__(self, bench: StoreBench, batch: NewBatch) -> None:
        self.bench = bench
        self.batch = batch
        self.id = batch.id

    async def add(self, count: int, **fields: object) -> list[str]:
        jobs = [self.bench.new(batch=self.id, **fields) for _ in range(count)]
        return [done.id for done in await self.bench.store.enqueue(jobs)]

    async def seal(self) -> None:
        await self.bench.store.seal_batch(self.id)

    async def view(self) -> BatchView:
        return await self.bench.store.batch(self.id)

    async def stored(self) -> set[str]:
        """Which followers were enqueued."""
        found = await self.bench.store.standings(
            BUDGET, [job.id for job in self.batch.followers.values()]
        )
        return {
            kind for kind, standing in zip(self.batch.followers, found, strict=True) if standing
        }


async def _open(
    bench: StoreBench, *, allowed_failures: int | None = 0, **options: object
) -> Followed:
    kinds: tuple[Follower, ...] = ("then", "catch", "finally")
    # Later than all else, so that no claim of a test meets them.
    followers: Mapping[Follower, NewJob] = {kind: bench.new(priority=1) for kind in kinds}
    batch = NewBatch(
        keys.new_batch_id(bench.code),
        bench.queue,
        allowed_failures=allowed_failures,
        followers=followers,
        **options,
    )
    await bench.store.open_batch(batch)
    return Followed(bench, batch)


def _counts(view: BatchView) -> tuple[int, int, int, int]:
    return view.total, view.pending, view.succeeded, view.failed


async def test_a_batch_counts_its_jobs_to_its_end(bench: StoreBench) -> None:
    batch = await _open(bench, name="nightly")
    await bench.enqueue(2, priority=9)
    ids = await batch.add(3)
    assert (await batch.view()).state == "open"
    await batch.seal()
    view = await batch.view()
    assert (view.state, view.name, _counts(view)) == ("running", "nightly", (3, 3, 0, 0))
    for done in range(5):
        assert await batch.stored() == set()
        await bench.run_one()
        assert (await batch.view()).succeeded == max(0, done - 1)
    view = await batch.view()
    assert (view.state, _counts(view)) == ("succeeded", (3, 0, 3, 0))
    assert view.finished_at is not None
    assert await batch.stored() == {"then", "finally"}
    assert await bench.store.batch_jobs(batch.id, offset=0, limit=10) == ids


@pytest.mark.parametrize(
    ("allowed", "failures", "catch_after", "followers"),
    [
        pytest.param(0, 0, None, {"then", "finally"}, id="none allowed, none failed"),
        pytest.param(0, 1, 1, {"catch", "finally"}, id="none allowed, one failed"),
        pytest.param(2, 2, None, {"then", "finally"}, id="as many as allowed"),
        pytest.param(2, 3, 3, {"catch", "finally"}, id="more than allowed"),
        pytest.param(None, 4, None, {"then", "finally"}, id="any allowed, all failed"),
    ],
)
async def test_allowed_failures(
    bench: StoreBench,
    allowed: int | None,
    failures: int,
    catch_after: int | None,
    followers: set[str],
) -> None:
    batch = await _open(bench, allowed_failures=allowed)
    await batch.add(4)
    await batch.seal()
    for number in range(1, 5):
        failed = number <= failures
        await bench.run_one(OutcomeClass.PERMANENT if failed else OutcomeClass.SUCCESS)
        caught = catch_after is not None and number >= catch_after
        assert ("catch" in await batch.stored()) is caught
    assert await batch.stored() == followers
    assert (await batch.view()).state == ("succeeded" if "then" in followers else "failed")


async def test_catch_does_not_wait_for_the_seal(bench: StoreBench) -> None:
    batch = await _open(bench)
    await batch.add(1)
    await bench.run_one(OutcomeClass.PERMANENT)
    assert await batch.stored() == {"catch"}
    await bench.store.open_batch(batch.batch)
    await batch.add(1)
    await bench.run_one(OutcomeClass.PERMANENT)  # `catch` runs first or last: both are one job
    await batch.seal()
    await drain_queue(bench)
    assert await batch.stored() == {"catch", "finally"}
    assert (await bench.states()) == {"dead": 2, "succeeded": 2}


async def test_a_producer_that_died_leaves_an_open_batch(bench: StoreBench) -> None:
    """It never ends by itself, is seen, and whoever runs the same again goes on with it."""
    batch = await _open(bench)
    jobs = [bench.new(batch=batch.id, key=f"{batch.id}:{n}") for n in range(4)]
    await bench.store.enqueue(jobs[:2])
    await bench.run_one()
    await bench.run_one()
    assert [view.state for view in await bench.store.batches(bench.queue)] == ["open"]
    assert await batch.stored() == set()
    await bench.store.open_batch(batch.batch)
    again = await bench.store.enqueue(jobs)
    assert [done.duplicate for done in again] == [True, True, False, False]
    assert _counts(await batch.view()) == (4, 2, 2, 0)
    await batch.seal()
    await bench.run_one()
    await bench.run_one()
    assert await batch.stored() == {"then", "finally"}
    assert await bench.store.batches(bench.queue) == []


async def test_an_enqueue_or_seal_that_is_repeated_counts_once(bench: StoreBench) -> None:
    """Q1: its answer was lost."""
    batch = await _open(bench)
    jobs = [bench.new(batch=batch.id) for _ in range(3)]
    for _ in range(2):
        await bench.store.enqueue(jobs)
    for _ in range(2):
        await batch.seal()
    await bench.store.enqueue(jobs)
    for _ in range(3):
        await bench.run_one()
    await batch.seal()
    assert _counts(await batch.view()) == (3, 0, 3, 0)
    assert (await bench.states()) == {"succeeded": 3, "ready": 2}


async def test_an_empty_batch_ends_when_sealed(bench: StoreBench) -> None:
    batch = await _open(bench)
    await batch.seal()
    assert (await batch.view()).state == "succeeded"
    assert await batch.stored() == {"then", "finally"}


async def test_a_repeated_settle_counts_once(bench: StoreBench) -> None:
    """Q40: and a late one of a job that ended otherwise counts nothing."""
    batch = await _open(bench, allowed_failures=None)
    await batch.add(2)
    await batch.seal()
    grant = await bench.run_one()
    for _ in range(3):
        assert (await bench.settle(grant)).verdict == "repeated"
    assert _counts(await batch.view()) == (2, 1, 1, 0)
    other = await bench.take()
    await bench.store.cancel(other.id)
    assert (await bench.settle(other)).verdict == "fenced"
    assert _counts(await batch.view()) == (2, 0, 1, 1)
    assert (await bench.states())["ready"] == 2


async def test_jobs_that_end_in_one_step_are_all_counted(bench: StoreBench) -> None:
    batch = await _open(bench)
    await batch.add(32)
    await batch.seal()
    await drain_queue(bench)
    assert _counts(await batch.view()) == (32, 0, 32, 0)
    assert (await bench.states()) == {"succeeded": 34}


async def test_crashes_and_reviews_keep_a_batch_open(bench: StoreBench) -> None:
    """A worker vanishes in a call that may be paid: the batch ends with the decision."""
    batch = await _open(bench)
    (job_id,) = await batch.add(1, worst_nano_usd=10**9)
    await batch.seal()
    grant = await bench.take()
    await bench.send(grant)
    await after_lease(bench)
    assert await bench.state(job_id) == "review"
    assert (await batch.view()).state == "running"
    assert await batch.stored() == set()
    await bench.settle(grant)
    assert await batch.stored() == {"then", "finally"}


async def test_a_retry_is_no_end(bench: StoreBench) -> None:
    batch = await _open(bench)
    await batch.add(1)
    await batch.seal()
    await bench.run_one(OutcomeClass.TRANSIENT)
    assert _counts(await batch.view()) == (1, 1, 0, 0)
    await bench.advance(30)
    await bench.store.snapshot(bench.queue, horizon_seconds=0)
    await bench.run_one()
    assert _counts(await batch.view()) == (1, 0, 1, 0)


async def test_deadlines_end_jobs_of_a_batch(bench: StoreBench) -> None:
    batch = await _open(bench)
    await batch.add(3, deadline_seconds=5)
    await batch.seal()
    await bench.advance(6)
    await bench.store.snapshot(bench.queue, horizon_seconds=0)
    assert _counts(await batch.view()) == (3, 0, 0, 3)
    assert await batch.stored() == {"catch", "finally"}


async def test_cancelling_a_batch(bench: StoreBench) -> None:
    """Q48: what waits ends at once, a running call when its worker settles; some at a time."""
    batch = await _open(bench)
    ids = await batch.add(5)
    await bench.run_one()
    grant = await bench.take()
    await bench.send(grant)
    assert await bench.store.cancel_batch(batch.id, offset=0, limit=4) == 4
    assert await bench.store.cancel_batch(batch.id, offset=4, limit=4) == 1
    view = await batch.view()
    assert (view.cancelled, view.sealed, _counts(view)) == (True, True, (5, 1, 1, 3))
    assert (await beat(bench, **{grant.id: grant.fence})).cancelled == {grant.id}
    await bench.settle(grant, OutcomeClass.CANCELLED)
    view = await batch.view()
    assert (view.state, _counts(view)) == ("failed", (5, 0, 1, 4))
    assert await batch.stored() == {"catch", "finally"}
    assert await bench.state(ids[4]) == "cancelled"


async def test_a_cancelled_batch_takes_no_more(bench: StoreBench) -> None:
    batch = await _open(bench)
    await bench.store.cancel_batch(batch.id, offset=0, limit=10)
    with pytest.raises(BatchConflict, match="takes no more jobs"):
        await batch.add(1)
    assert (await bench.states()) == {"ready": 2}


async def test_only_new_jobs_join(bench: StoreBench) -> None:
    """What was enqueued before may be done long ago: a batch could not count its end."""
    first, second = await _open(bench), await _open(bench)
    await bench.store.enqueue([bench.new(key="alone")])
    await bench.store.enqueue([bench.new(key="first", batch=first.id)])
    for key, where in (("alone", "outside of any batch"), ("first", f"in batch {first.id}")):
        with pytest.raises(BatchConflict, match=where):
            await bench.store.enqueue([bench.new(key=key, batch=second.id)])
    assert _counts(await second.view()) == (0, 0, 0, 0)


async def test_one_job_twice_in_a_call_is_counted_once(bench: StoreBench) -> None:
    batch = await _open(bench)
    job = bench.new(key="k", batch=batch.id)
    answers = await bench.store.enqueue([job, job])
    assert [each.duplicate for each in answers] == [False, True]
    assert (await batch.view()).total == 1


async def test_unknown_batches(bench: StoreBench) -> None:
    nobody = keys.new_batch_id(bench.code)
    for call in (
        bench.store.batch(nobody),
        bench.store.batch("abcd-none"),
        bench.store.seal_batch(nobody),
        bench.store.cancel_batch(nobody, offset=0, limit=1),
        bench.store.enqueue([bench.new(batch=nobody)]),
    ):
        with pytest.raises(UnknownBatch):
            await call
    with pytest.raises(UnknownQueue):
        await bench.store.open_batch(NewBatch(nobody, "default/none"))
    assert await bench.states() == {}


async def test_followers_are_stored_into_a_full_queue(bench: StoreBench) -> None:
    """Nobody would repeat them."""
    await bench.configure(queue={"max_jobs": 2})
    batch = await _open(bench)
    await batch.add(2)
    await batch.seal()
    await bench.run_one()
    await bench.enqueue()
    await bench.run_one()
    assert await batch.stored() == {"then", "finally"}
    assert (await bench.states())["ready"] == 3


async def test_a_follower_is_a_job_like_any_other(bench: StoreBench) -> None:
    then = bench.new(tenant="t", feature="f", delay_seconds=60, payload='{"é":1}'.encode())
    batch = NewBatch(keys.new_batch_id(bench.code), bench.queue, followers={"then": then})
    await bench.store.open_batch(batch)
    await bench.store.seal_batch(batch.id)
    view = await bench.store.job(then.id)
    assert (view.state, view.tenant, view.payload) == (JobState.DELAYED, "t", '{"é":1}'.encode())
    await bench.advance(61)
    await bench.store.snapshot(bench.queue, horizon_seconds=0)
    assert (await bench.run_one()).id == then.id
    assert await bench.states() == {"succeeded": 1}


async def test_retention_spares_jobs_of_a_batch_that_goes_on(bench: StoreBench) -> None:
    """Unfinished batches are never trimmed, by time or by count."""
    await bench.configure(queue={"retention": Retention(7200, 7200, max_succeeded=1)})
    batch = await _open(bench)
    ids = await batch.add(3)
    await bench.enqueue(2)
    for _ in range(4):
        await bench.run_one()
    for _ in range(4):
        await bench.advance(4000)
        await bench.store.snapshot(bench.queue, horizon_seconds=0)
    found = await bench.store.standings(BUDGET, ids)
    assert [each and each.state for each in found] == [JobState.SUCCEEDED] * 3
    assert (await bench.states())["succeeded"] == 3
    await batch.seal()
    for _ in range(4):
        await bench.advance(4000)
        await bench.store.snapshot(bench.queue, horizon_seconds=0)
    assert await bench.store.standings(BUDGET, ids) == [None] * 3


async def test_a_batch_leaves_with_its_jobs(bench: StoreBench) -> None:
    """Q43: nothing of it is left after its retention."""
    await bench.configure(queue={"retention": Retention(1, 1)})
    batch = await _open(bench)
    await batch.add(1)
    await batch.seal()
    for prefix in ("b", "bj", "bf"):
        assert await bench.redis.pttl(bench.key(prefix, batch.id)) == -1
    await bench.run_one()
    for prefix in ("b", "bj", "bf"):
        assert await bench.redis.pttl(bench.key(prefix, batch.id)) in range(-2, 1001)
        assert await bench.redis.pttl(bench.key(prefix, batch.id)) != -1


async def test_the_end_of_a_batch_is_told(bench: StoreBench) -> None:
    good, bad = await _open(bench), await _open(bench)
    after = (await bench.store.listen(BUDGET, 30)).after
    await good.seal()
    await bad.add(1)
    await bad.seal()
    await bench.store.cancel_batch(bad.id, offset=0, limit=1)
    told = (await bench.store.news(BUDGET, after, wait_seconds=0))[0]
    ends = {n.subject: n.state for n in told if n.subject in (good.id, bad.id)}
    assert ends == {good.id: JobState.SUCCEEDED, bad.id: JobState.DEAD}
    found = await bench.store.standings(BUDGET, [good.id, bad.id])
    assert [each and each.state for each in found] == [JobState.SUCCEEDED, JobState.DEAD]


async def test_ordinary_jobs_know_of_no_batch(bench: StoreBench) -> None:
    (job_id,) = await bench.enqueue()
    assert not await bench.redis.hexists(bench.key("j", job_id), "bi")
