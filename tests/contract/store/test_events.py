"""What listeners are told of jobs, and the progress of running ones."""

from __future__ import annotations

import pytest

from llmqueue.errors import UnknownJob
from llmqueue.states import JobState, OutcomeClass
from llmqueue.store.port import News
from support.storebench import StoreBench, after_lease

BUDGET = "default/q"
SOON = 0.0


async def _told(bench: StoreBench, after: str) -> list[News]:
    return (await bench.store.news(BUDGET, after, wait_seconds=SOON))[0]


async def _states(bench: StoreBench, after: str, job_id: str) -> list[str]:
    return [str(each.state) for each in await _told(bench, after) if each.subject == job_id]


async def test_nothing_is_written_while_nobody_listens(bench: StoreBench) -> None:
    await bench.enqueue()
    await bench.run_one()
    assert not await bench.redis.exists(bench.key("events"))


async def test_a_listener_hears_of_a_job_s_whole_life(bench: StoreBench) -> None:
    """A lease alone is no news: its request may yet be refused."""
    after = (await bench.store.listen(BUDGET, 30)).after
    (job_id,) = await bench.enqueue()
    grant = await bench.take()
    await bench.store.release(bench.queue, [(job_id, grant.fence)])
    await bench.run_one(OutcomeClass.TRANSIENT)
    await bench.advance(10)
    await bench.store.snapshot(bench.queue, horizon_seconds=0)
    await bench.run_one()
    assert await _states(bench, after, job_id) == ["sent", "delayed", "ready", "sent", "succeeded"]


@pytest.mark.parametrize(
    ("end", "state"),
    [("cancel", "cancelled"), ("dead", "dead"), ("deadline", "expired"), ("lost", "review")],
)
async def test_each_end_is_told(bench: StoreBench, end: str, state: str) -> None:
    deadline = 5.0 if end == "deadline" else None
    (job_id,) = await bench.enqueue(deadline_seconds=deadline, worst_nano_usd=10**9)
    after = (await bench.store.listen(BUDGET, 300)).after
    if end == "cancel":
        await bench.store.cancel(job_id)
    elif end == "dead":
        await bench.run_one(OutcomeClass.PERMANENT)
    elif end == "lost":
        await bench.send(await bench.take())
        await after_lease(bench)
    else:
        await bench.advance(6)
        await bench.store.snapshot(bench.queue, horizon_seconds=0)
    assert (await _states(bench, after, job_id))[-1] == state


async def test_listening_ends_by_itself(bench: StoreBench) -> None:
    after = (await bench.store.listen(BUDGET, 5)).after
    await bench.advance(6)
    (job_id,) = await bench.enqueue()
    await bench.run_one()
    assert await _states(bench, after, job_id) == []
    assert (await bench.store.listen(BUDGET, 5)).gapless is False
    assert (await bench.store.listen(BUDGET, 5)).gapless is True


async def test_the_stream_is_capped_and_leaves_when_nobody_listens(bench: StoreBench) -> None:
    await bench.store.listen(BUDGET, 600)
    await bench.enqueue(600)
    done = 0
    while done < 600:
        grants = (await bench.claim(32)).grants
        await bench.send(*grants)
        for grant in grants:
            for _ in range(20):
                await bench.store.progress(
                    bench.queue, grant.id, grant.fence, fraction=0.5, message=""
                )
            await bench.settle(grant)
            done += 1
    assert 9_000 < await bench.redis.xlen(bench.key("events")) < 10_500
    assert 0 < await bench.redis.pttl(bench.key("events")) <= 4_300_000


async def test_news_are_waited_for_and_read_on_from_where_one_was(bench: StoreBench) -> None:
    after = (await bench.store.listen(BUDGET, 30)).after
    assert await bench.store.news(BUDGET, after, wait_seconds=0.05) == ([], after)
    ids = await bench.enqueue(3)
    for job_id in ids:
        await bench.store.cancel(job_id)
    first, at = await bench.store.news(BUDGET, after, wait_seconds=5)
    assert [each.subject for each in first] == ids
    assert at == first[-1].id
    assert await bench.store.news(BUDGET, at, wait_seconds=SOON) == ([], at)
    assert await _told(bench, first[0].id) == first[1:]


async def test_entries_of_a_later_version_are_passed_over(bench: StoreBench) -> None:
    after = (await bench.store.listen(BUDGET, 30)).after
    await bench.redis.xadd(bench.key("events"), {"k": "something new"})
    last = await bench.redis.xadd(bench.key("events"), {"j": "x", "s": "?"})
    assert await bench.store.news(BUDGET, after, wait_seconds=SOON) == ([], last.decode())


# ---------------------------------------------------------------- progress


async def test_progress_is_kept_shown_and_told(bench: StoreBench) -> None:
    await bench.enqueue()
    after = (await bench.store.listen(BUDGET, 30)).after
    grant = await bench.take()
    for fraction, message in ((0.25, "début ☕"), (0.5, "half way")):
        await bench.store.progress(
            bench.queue, grant.id, grant.fence, fraction=fraction, message=message
        )
    shown = (await bench.store.job(grant.id)).progress
    assert shown is not None
    assert (shown.fraction, shown.message) == (0.5, "half way")
    told = await _told(bench, after)
    assert [(n.state, n.progress.message) for n in told if n.progress] == [
        (JobState.LEASED, "début ☕"),
        (JobState.LEASED, "half way"),
    ]
    (standing,) = await bench.store.standings(BUDGET, [grant.id])
    assert standing is not None
    assert standing.progress == shown


async def test_a_long_message_is_cut(bench: StoreBench) -> None:
    await bench.enqueue()
    grant = await bench.take()
    await bench.store.progress(bench.queue, grant.id, grant.fence, fraction=1, message="é" * 500)
    shown = (await bench.store.job(grant.id)).progress
    assert shown is not None
    assert shown.message == "é" * 200


async def test_only_the_present_fence_writes_progress(bench: StoreBench) -> None:
    """Q16: a worker that lost its lease says nothing any more."""
    (job_id,) = await bench.enqueue()
    old = await bench.take()
    await bench.store.release(bench.queue, [(job_id, old.fence)])
    new = await bench.take()
    await bench.store.progress(bench.queue, job_id, old.fence, fraction=0.9, message="old")
    assert (await bench.store.job(job_id)).progress is None
    await bench.send(new)
    await bench.settle(new)
    await bench.store.progress(bench.queue, job_id, new.fence, fraction=0.9, message="late")
    assert (await bench.store.job(job_id)).progress is None


async def test_progress_goes_with_its_job(bench: StoreBench) -> None:
    """Q43: nothing of a job is left after its retention."""
    await bench.enqueue()
    grant = await bench.take()
    await bench.store.progress(bench.queue, grant.id, grant.fence, fraction=0.1, message="x")
    await bench.send(grant)
    await bench.settle(grant)
    await bench.advance(86_401)
    await bench.store.snapshot(bench.queue, horizon_seconds=0)
    assert await bench.redis.keys(f"*{grant.id}*") == []


# ---------------------------------------------------------------- standings, reading


async def test_standings_of_many_at_once(bench: StoreBench) -> None:
    ready, cancelled = await bench.enqueue(2)
    await bench.store.cancel(cancelled)
    got = await bench.store.standings(BUDGET, [ready, "none" + "0" * 18, cancelled])
    assert [each and each.state for each in got] == [JobState.READY, None, JobState.CANCELLED]


async def test_reading_writes_nothing(bench: StoreBench) -> None:
    """A look at a job after a long silence is not what begins an outage's ramp."""
    (job_id,) = await bench.enqueue()
    await bench.run_one()
    await bench.advance(3600, outage=True)
    before = await bench.redis.hgetall(bench.key("run"))
    await bench.store.job(job_id)
    await bench.store.standings(BUDGET, [job_id])
    assert await bench.redis.hgetall(bench.key("run")) == before


async def test_a_retired_job_that_is_still_listed_is_gone(bench: StoreBench) -> None:
    (job_id,) = await bench.enqueue()
    await bench.store.cancel(job_id)
    await bench.advance(604_801)
    await bench.store.snapshot(bench.queue, horizon_seconds=0)
    with pytest.raises(UnknownJob):
        await bench.store.job(job_id)
    assert await bench.store.standings(BUDGET, [job_id]) == [None]
