"""Limits of a day: in a time zone's calendar, and in any 24 hours."""

from __future__ import annotations

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from llmqueue.config import Limit
from llmqueue.outcome import Usage
from llmqueue.states import JobState, LimitUnit, OutcomeClass, WaitReason
from support.storebench import StoreBench

REQUESTS, TOKENS = LimitUnit.REQUESTS, LimitUnit.TOKENS
PACIFIC = "America/Los_Angeles"
DAY = 86_400
HOUR = 3600


def per_day(limit: int, zone: str | None = PACIFIC, unit: LimitUnit = REQUESTS) -> Limit:
    return Limit(unit, limit, DAY, zone)


async def at(bench: StoreBench, local: datetime, *limits: Limit, **budget: object) -> None:
    """Configure the budget, and let it be that time."""
    bench.store.wall_clock = local.timestamp
    await bench.configure(budget={"limits": limits, **budget})
    await set_clock(bench, local)


async def set_clock(bench: StoreBench, local: datetime) -> None:
    await bench.claim(0)
    await bench.advance(local.timestamp() - await bench.server_ms() / 1000)


def pacific(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=ZoneInfo(PACIFIC))  # type: ignore[misc,arg-type]


async def used(bench: StoreBench) -> int:
    (limit,) = (await bench.store.snapshot(bench.queue, horizon_seconds=0)).limits
    return limit.used


async def take_all(bench: StoreBench, count: int) -> None:
    await bench.enqueue(count)
    reply = await bench.claim(count)
    assert len(reply.grants) == count
    await bench.send(*reply.grants)
    for grant in reply.grants:
        await bench.settle(grant)


DAYS = {
    "24 hours": (pacific(2026, 12, 1, 0, 0, 5), 24),
    "23 hours in spring": (pacific(2027, 3, 14, 0, 0, 5), 23),
    "25 hours in autumn": (pacific(2026, 11, 1, 0, 0, 5), 25),
    "half an hour off": (datetime(2026, 12, 1, 0, 0, 5, tzinfo=ZoneInfo("Asia/Kolkata")), 24),
    "midnight is leapt over": (datetime(2026, 4, 24, 1, 0, 5, tzinfo=ZoneInfo("Africa/Cairo")), 23),
}


@pytest.mark.parametrize(("start", "hours"), DAYS.values(), ids=DAYS.keys())
async def test_a_day_ends_at_midnight(bench: StoreBench, start: datetime, hours: int) -> None:
    """P7: a calendar window, not a refilling rate, also on days that are no 24 hours."""
    zone = start.tzinfo.key  # type: ignore[union-attr]
    await at(bench, start, per_day(3, zone))
    await take_all(bench, 3)
    await bench.enqueue()
    reply = await bench.claim()
    assert (reply.reason, reply.limit) == (WaitReason.REQUESTS, f"requests/day@{zone}")
    # Five seconds of the day have passed, and a second is left for calls on their way.
    assert reply.wait_seconds == pytest.approx(hours * HOUR - 5 + 1, abs=1)
    await bench.advance(hours * HOUR - 10)
    assert not (await bench.claim()).grants
    await bench.advance(8)
    assert (await bench.claim()).grants


async def test_a_charge_at_midnight_counts_for_both_days(bench: StoreBench) -> None:
    """The call may arrive on either side of it."""
    await at(bench, pacific(2026, 12, 1, 23, 59, 58), per_day(10))
    await take_all(bench, 1)
    await bench.advance(1.5)
    await take_all(bench, 2)
    assert await used(bench) == 3
    await bench.advance(1.0)
    await take_all(bench, 4)
    assert await used(bench) == 7, "the day before counts for one more second"
    await bench.advance(1.5)
    assert await used(bench) == 6


async def test_what_is_sent_after_midnight_counts_there(bench: StoreBench) -> None:
    await at(bench, pacific(2026, 12, 1, 23, 59, 56), per_day(10))
    await bench.enqueue()
    grant = await bench.take()
    await bench.advance(6)
    assert await used(bench) == 0
    assert await bench.send(grant) == [True]
    assert await used(bench) == 1


async def test_a_full_new_day_refuses_what_was_claimed_before_it(bench: StoreBench) -> None:
    await at(bench, pacific(2026, 12, 1, 23, 59, 56), per_day(1), lease_seconds=60)
    await bench.enqueue(2)
    early = await bench.take()
    await bench.advance(6)
    await bench.take(worker="w:2")
    assert await bench.send(early) == [False]


async def test_a_correction_goes_to_the_day_that_was_charged(bench: StoreBench) -> None:
    await at(
        bench,
        pacific(2026, 12, 1, 23, 59, 50),
        per_day(1000, unit=TOKENS),
        token_accounting="correct",
        lease_seconds=60,
    )
    await bench.enqueue(1, tokens=(10, 900))
    grant = await bench.take()
    assert await bench.send(grant) == [True]
    await bench.advance(20)
    await bench.enqueue(1, tokens=(10, 100))
    await bench.take()
    await bench.settle(grant, usage=Usage(10, 30))
    assert await used(bench) == 100
    days = await bench.redis.hgetall(bench.key("win", f"tokens/day@{PACIFIC}"))
    assert sorted(map(int, days.values())) == [30, 100]


async def test_the_clock_steps_back_over_midnight(bench: StoreBench) -> None:
    """A server whose clock was an hour fast is back in the day before, with what that has used."""
    await at(bench, pacific(2026, 12, 1, 23, 10, 0), per_day(3))
    await take_all(bench, 3)
    await bench.advance(HOUR)
    await take_all(bench, 1)
    await bench.redis.hincrby(bench.key("run"), "off", -HOUR * 1000)
    await bench.enqueue()
    reply = await bench.claim()
    assert not reply.grants
    assert reply.wait_seconds == pytest.approx(50 * 60, abs=5)
    await bench.advance(51 * 60)
    assert await used(bench) == 1
    assert (await bench.claim()).grants


async def test_a_charge_larger_than_the_rest_waits_for_the_next_day(bench: StoreBench) -> None:
    await at(bench, pacific(2026, 12, 1, 12, 0, 0), per_day(1000, unit=TOKENS))
    await bench.enqueue(1, tokens=(10, 900))
    await bench.run_one()
    (job_id,) = await bench.enqueue(1, tokens=(10, 200))
    reply = await bench.claim()
    assert reply.reason is WaitReason.TOKENS
    assert await bench.state(job_id) == "ready"
    await bench.advance(12 * HOUR + 2)
    assert (await bench.take()).id == job_id


async def test_a_job_larger_than_the_whole_day_ends_dead(bench: StoreBench) -> None:
    """P5: it blocks nobody."""
    await at(bench, pacific(2026, 12, 1, 12, 0, 0), per_day(1000, unit=TOKENS))
    (job_id,) = await bench.enqueue(1, tokens=(10, 1001))
    assert not (await bench.claim()).grants
    assert (await bench.store.job(job_id)).state is JobState.DEAD


async def test_days_that_are_not_listed_have_24_hours(bench: StoreBench) -> None:
    """Whoever writes the configuration was away for months."""
    await at(bench, pacific(2026, 12, 1, 12, 0, 0), per_day(2))
    await set_clock(bench, pacific(2026, 12, 1, 12, 0, 0) + timedelta(days=100))
    await take_all(bench, 2)
    await bench.enqueue()
    assert 10 * HOUR < (await bench.claim()).wait_seconds < 14 * HOUR
    await bench.advance(DAY)
    assert (await bench.claim()).grants


async def test_any_24_hours(bench: StoreBench) -> None:
    """Without a zone midnight means nothing."""
    await bench.configure(budget={"limits": (per_day(3, None),)})
    await take_all(bench, 2)
    await bench.advance(12 * HOUR)
    await take_all(bench, 1)
    await bench.enqueue(1)
    assert (await bench.claim()).wait_seconds == pytest.approx(12 * HOUR, abs=800)
    await bench.advance(12 * HOUR - 30)
    assert not (await bench.claim()).grants
    await bench.advance(800)
    assert (await bench.claim()).grants


LONG = {"calendar day": per_day(10_000), "any 24 hours": per_day(10_000, None)}


@pytest.mark.parametrize("limit", LONG.values(), ids=LONG.keys())
async def test_a_day_s_limit_is_not_spread_over_the_day(bench: StoreBench, limit: Limit) -> None:
    """300 jobs under 10,000 a day and 500 a minute run at 500 a minute, not at 7."""
    await bench.configure(budget={"limits": (limit, Limit(REQUESTS, 500))})
    await bench.enqueue(300)
    granted, start = 0, await bench.now_ms()
    while granted < 200:
        reply = await bench.claim(25)
        granted += len(reply.grants)
        await bench.advance(max(0.02, reply.wait_seconds))
    assert (await bench.now_ms() - start) / 1000 < 200 / (500 / 60) + 1


@pytest.mark.parametrize("limit", LONG.values(), ids=LONG.keys())
async def test_alone_it_limits_no_rate(bench: StoreBench, limit: Limit) -> None:
    await bench.configure(budget={"limits": (limit,)})
    await take_all(bench, 100)


async def test_blocked_workers_are_told_by_the_minute_s_limit(bench: StoreBench) -> None:
    """The day's limit comes first in the list, and says nothing about when to ask again."""

    await bench.configure(budget={"limits": (per_day(100), Limit(REQUESTS, 600))})
    await bench.enqueue(20)
    await bench.run_one(OutcomeClass.RATE, retry_after_seconds=10)
    waits = [(await bench.claim(worker=f"w:{n}")).wait_seconds for n in range(5)]
    assert waits == sorted(waits)
    assert waits[-1] - waits[0] == pytest.approx(4 * 0.1 / 1.03, abs=0.1)
