"""What limits become when the provider's headers or its 429s say otherwise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from llmqueue.config import BreakerPolicy, Limit
from llmqueue.outcome import LimitHint, Usage
from llmqueue.states import LimitUnit, OutcomeClass, WaitReason
from llmqueue.store.port import Grant
from support.storebench import StoreBench
from support.virtualprovider import VirtualProvider, VirtualWorkers

REQUESTS, TOKENS = LimitUnit.REQUESTS, LimitUnit.TOKENS
RPM = Limit(REQUESTS, 600)
RPD = Limit(REQUESTS, 10_000, 86_400)
NO_BREAKER = BreakerPolicy(failures=10_000)


async def configure(bench: StoreBench, *limits: Limit, **budget: Any) -> None:
    budget.setdefault("header_window_seconds", 60)
    await bench.configure(budget={"limits": limits, "breaker": NO_BREAKER, **budget})


async def effective(bench: StoreBench, limit: Limit = RPM) -> int:
    snapshot = await bench.store.snapshot(bench.queue, horizon_seconds=0)
    return snapshot.effective_limits[limit.name]


async def pass_time(bench: StoreBench, seconds: float) -> None:
    """Time during which the store stays in use."""
    while seconds > 0:
        await bench.advance(min(4.0, seconds))
        await bench.claim(0)
        seconds -= 4.0


async def granted(bench: StoreBench) -> Grant:
    """The next job, once the limits let it go, and sent."""
    reply = await bench.claim()
    while not reply.grants:
        assert reply.reason is not WaitReason.EMPTY
        await bench.advance(reply.wait_seconds + 0.001)
        reply = await bench.claim()
    (grant,) = reply.grants
    assert await bench.send(grant) == [True]
    return grant


async def use(bench: StoreBench, count: int, *, size: int = 1) -> None:
    """So many calls of `size` tokens that succeed, as fast as the limits let them."""
    await bench.enqueue(count, tokens=(1, size))
    for _ in range(count):
        await bench.settle(await granted(bench), usage=Usage(1, size))


async def refuse(
    bench: StoreBench, kind: OutcomeClass = OutcomeClass.RATE, *, size: int = 1
) -> None:
    """A round of 429s that is waited out; the job goes then."""
    await bench.enqueue(1, tokens=(1, size), priority=1)
    job = await granted(bench)
    await bench.settle(job, kind, retry_after_seconds=1)
    await bench.store.cancel(job.id)
    await bench.advance(1.01)


# ---------------------------------------------------------------- headers

HEARD = {
    # (learn up, hint, effective limits of a minute and of a day)
    "a lower one": (False, LimitHint("requests", 300, 290, 2.0), (300, 10_000)),
    "a higher one": (False, LimitHint("requests", 900, 890, 0.67), (600, 10_000)),
    "a higher one, both ways": (True, LimitHint("requests", 900, 890, 0.67), (900, 10_000)),
    "a lower one, both ways": (True, LimitHint("requests", 300, 290, 2.0), (300, 10_000)),
    "a day's": (False, LimitHint("requests", 8000, 7990, 108.0), (600, 8000)),
    "a higher day's": (True, LimitHint("requests", 14_400, 14_370, 179.56), (600, 14_400)),
    "no window told": (False, LimitHint("requests", 300), (300, 10_000)),
    "nothing used": (False, LimitHint("requests", 300, 300, 0.0), (300, 10_000)),
    "an hour's, which is not declared": (False, LimitHint("requests", 50, 40, 720), (600, 10_000)),
    "another unit's": (False, LimitHint("tokens", 50, 40, 12.0), (600, 10_000)),
    "zero": (False, LimitHint("requests", 0, 0, 60.0), (600, 10_000)),
    "nonsense": (True, LimitHint("requests", 10**9, 10**9 - 1, 6e-8), (600, 10_000)),
    "no limit": (False, LimitHint("requests", None, 5, 2.0), (600, 10_000)),
}


@pytest.mark.parametrize(("up", "hint", "expected"), HEARD.values(), ids=HEARD.keys())
async def test_limits_in_headers(
    bench: StoreBench, up: bool, hint: LimitHint, expected: tuple[int, int]
) -> None:
    """P10: what is no limit is ignored, and each limit of a header is held against the window that
    it speaks of."""
    await configure(bench, RPM, RPD, learn_up=up)
    await bench.enqueue()
    await bench.run_one(limits=(hint,))
    assert (await effective(bench), await effective(bench, RPD)) == expected


async def test_a_window_that_nothing_tells_is_not_guessed(bench: StoreBench) -> None:
    """Compatible servers give their headers meanings of their own."""
    await configure(bench, RPM, header_window_seconds=None)
    await bench.enqueue(2)
    await bench.run_one(limits=(LimitHint("requests", 300),))
    assert await effective(bench) == 600
    await bench.advance(1)
    await bench.run_one(limits=(LimitHint("requests", 300, 290, 2.0),))
    assert await effective(bench) == 300


async def test_an_older_response_is_ignored(bench: StoreBench) -> None:
    """A slow call answers with what was true when it was sent."""
    await configure(bench, RPM)
    await bench.enqueue(3)
    slow, quick, later = [await _sent(bench) for _ in range(3)]
    await bench.settle(quick, limits=(LimitHint("requests", 300),))
    await bench.settle(slow, limits=(LimitHint("requests", 500),))
    assert await effective(bench) == 300
    await bench.settle(later, limits=(LimitHint("requests", 400),))
    assert await effective(bench) == 400


async def _sent(bench: StoreBench) -> Any:
    await bench.advance(0.5)
    grant = await bench.take()
    await bench.send(grant)
    return grant


async def test_headers_are_forgotten(bench: StoreBench) -> None:
    """Of a provider that no longer sends them."""
    await configure(bench, RPM)
    await bench.enqueue()
    await bench.run_one(limits=(LimitHint("requests", 300),))
    await bench.advance(3601)
    assert await effective(bench) == 600


async def test_the_owner_lowers_what_headers_allow(bench: StoreBench) -> None:
    await configure(bench, RPM)
    await bench.enqueue()
    await bench.run_one(limits=(LimitHint("requests", 300),))
    await configure(bench, replace(RPM, limit=100))
    assert await effective(bench) == 100
    await configure(bench, RPM)
    assert await effective(bench) == 300


async def test_a_lower_header_counts_at_once(bench: StoreBench) -> None:
    await configure(bench, RPM)
    await use(bench, 20)
    await bench.enqueue(2)
    await bench.settle(await granted(bench), limits=(LimitHint("requests", 21),))
    reply = await bench.claim()
    assert reply.reason is WaitReason.REQUESTS
    assert reply.wait_seconds > 50


# ---------------------------------------------------------------- 429s


async def test_one_round_of_429s_lowers_no_limit(bench: StoreBench) -> None:
    """However many calls it meets, and also where the next one comes minutes later."""
    await configure(bench, RPM)
    await use(bench, 30)
    await bench.enqueue(4)
    await bench.advance(1)
    grants = (await bench.claim(4)).grants
    assert len(grants) == 4
    await bench.send(*grants)
    for grant in grants:
        await bench.settle(grant, OutcomeClass.RATE, retry_after_seconds=1)
    assert await effective(bench) == 600
    await pass_time(bench, 130)
    await refuse(bench)
    assert await effective(bench) == 600


ACCOUNTING = {"reservations": "keep", "actual usage": "correct"}


@pytest.mark.parametrize("accounting", ACCOUNTING.values(), ids=ACCOUNTING.keys())
@pytest.mark.parametrize("unit", [REQUESTS, TOKENS])
async def test_a_second_round_tells_the_limit(
    bench: StoreBench, unit: LimitUnit, accounting: str
) -> None:
    """What the provider let through within its window is the limit; what it refused is not in."""
    size = 1 if unit is REQUESTS else 100
    limit = Limit(unit, 100 * size)
    await configure(bench, limit, token_accounting=accounting)
    await use(bench, 30, size=size)
    await refuse(bench, size=size)
    await use(bench, 28, size=size)
    await refuse(bench, size=size)
    assert await effective(bench, limit) == 58 * size


async def test_what_is_refused_later_was_not_accepted(bench: StoreBench) -> None:
    """Calls that were on their way when the limit was learned."""
    await configure(bench, replace(RPM, limit=60))
    await use(bench, 20)
    await refuse(bench)
    await use(bench, 13)
    await bench.enqueue(3)
    await bench.advance(3)
    calls = [await granted(bench) for _ in range(3)]
    for number, call in enumerate(calls):
        await bench.settle(call, OutcomeClass.RATE, retry_after_seconds=1)
        assert await effective(bench, replace(RPM, limit=60)) == 35 - number


async def learn(bench: StoreBench, accepted: int = 320) -> int:
    """Two rounds within a window."""
    await use(bench, accepted // 2)
    await refuse(bench)
    await use(bench, accepted // 2)
    await refuse(bench)
    return await effective(bench)


async def test_never_less_than_half_of_before(bench: StoreBench) -> None:
    """A short burst that is refused says little of the minute's limit."""
    await configure(bench, RPM)
    assert await learn(bench, 20) == 300


async def test_it_is_tried_upwards_again(bench: StoreBench) -> None:
    """Held for 15 s, then a quarter more every 10 s, up to the declared limit."""
    await configure(bench, RPM)
    assert await learn(bench, 20) == 300
    steps = []
    for wait in (13, 3, 10, 10, 10):
        await pass_time(bench, wait)
        steps.append(await effective(bench))
    assert steps == [300, 375, 469, 586, 600]


async def test_a_refused_try_holds_longer(bench: StoreBench) -> None:
    """15, 30, 60 s; and calls go on without a ramp."""
    await configure(bench, RPM)
    await learn(bench, 20)
    holds = []
    for _ in range(4):
        waited = 0
        held = await effective(bench)
        while await effective(bench) == held:
            await pass_time(bench, 1)
            waited += 1
        holds.append(waited)
        await use(bench, 1)
        await refuse(bench)
        assert (await bench.store.snapshot(bench.queue, horizon_seconds=0)).rate_factor == 1
    assert holds == [pytest.approx(seconds, abs=2) for seconds in (15, 30, 60, 60)]


async def test_a_raise_begins_without_what_was_saved_up(bench: StoreBench) -> None:
    """A whole second's calls at once would all be refused, where one tells as much."""
    await configure(bench, RPM)
    await use(bench, 295)
    await refuse(bench)
    await use(bench, 3)
    await refuse(bench)
    assert await effective(bench) == 300
    await bench.enqueue(20)
    await pass_time(bench, 14.5)
    while (await effective(bench)) == 300:
        assert len((await bench.claim(20)).grants) <= 1
        await bench.advance(0.1)
    reply = await bench.claim(20)
    assert (len(reply.grants), reply.reason) == (1, WaitReason.REQUESTS)


async def test_without_a_success_between_it_is_an_outage(bench: StoreBench) -> None:
    """429s to everything say nothing of a rate: the schedule waits them out."""
    await configure(bench, RPM)
    await use(bench, 20)
    for _ in range(5):
        await refuse(bench)
    assert await effective(bench) == 600


async def test_slow_down_is_answered_by_its_own_rule(bench: StoreBench) -> None:
    """RAMP halves the rate for two minutes: no limit is lowered besides."""
    await configure(bench, RPM)
    for _ in range(3):
        await use(bench, 10)
        await refuse(bench, OutcomeClass.RAMP)
    assert await effective(bench) == 600


async def test_the_fullest_limit_is_the_one_that_binds(bench: StoreBench) -> None:
    tokens = Limit(TOKENS, 10_000)
    await configure(bench, RPM, tokens)
    await use(bench, 20, size=100)
    await refuse(bench)
    await use(bench, 20, size=100)
    await refuse(bench)
    assert (await effective(bench), await effective(bench, tokens)) == (600, 5000)


async def test_a_day_s_limit_is_not_learned_from_429s(bench: StoreBench) -> None:
    """Half of a day's limit would mean to stop for the rest of the day."""
    day = replace(RPD, limit=50)
    await configure(bench, day, RPM)
    await learn(bench, 40)
    assert await effective(bench, day) == 50
    assert await effective(bench) == 300


async def test_a_job_above_what_was_learned_waits_for_an_empty_window(bench: StoreBench) -> None:
    """It is within the declared limit, so it is never `too large`."""
    tokens = Limit(TOKENS, 10_000)
    await configure(bench, tokens)
    await bench.enqueue(1, tokens=(1, 100))
    await bench.settle(await granted(bench), limits=(LimitHint("tokens", 4000),))
    assert await effective(bench, tokens) == 4000
    (job_id,) = await bench.enqueue(1, tokens=(1, 9000))
    reply = await bench.claim()
    assert (reply.reason, reply.grants) == (WaitReason.TOKENS, ())
    await bench.advance(reply.wait_seconds + 0.01)
    grant = await bench.take()
    assert grant.id == job_id
    await bench.advance(1)
    assert await bench.send(grant) == [True], "late, and still alone in its window"


async def test_no_storm_besides(bench: StoreBench) -> None:
    """S42: a limit that was learned is enough; the rate is not halved on top of it."""
    await configure(bench, RPM)
    await learn(bench, 4)
    for _ in range(6):
        await refuse(bench)
    await pass_time(bench, 11)
    snapshot = await bench.store.snapshot(bench.queue, horizon_seconds=0)
    assert 2 * snapshot.answers_rate > snapshot.answers
    assert snapshot.rate_factor == 1


# ---------------------------------------------------------------- over minutes

PROVIDERS = {
    "headers": {"headers": True},
    "retry-after": {},
    "neither": {"retry_after": False},
}


@pytest.mark.parametrize("told", PROVIDERS.values(), ids=PROVIDERS.keys())
async def test_the_provider_halves_and_doubles_its_limit(
    bench: StoreBench, told: dict[str, bool]
) -> None:
    """Q19: within two minutes at least 0.9 of it is used, and there is no storm of 429s."""
    await configure(bench, replace(RPM, limit=300))
    provider = VirtualProvider(300, **told)
    workers = VirtualWorkers(bench, provider, workers=2)
    await bench.enqueue(1800)
    begin, end = await workers.run(70)
    assert provider.refused == []
    provider.limit = 150
    begin, end = await workers.run(180)
    lowered = provider.use(end - 60, end), provider.refused_share(begin + 20, end)
    provider.limit = 300
    begin, end = await workers.run(165)
    raised = provider.use(end - 60, end), provider.refused_share(begin, end)
    print(f"lowered: use {lowered[0]:.3f}, 429s {lowered[1]:.4f}; raised: use {raised[0]:.3f}")
    assert lowered[0] >= 0.9
    assert lowered[1] <= 0.02
    assert raised[0] >= 0.9
    assert raised[1] <= 0.02


async def test_others_use_the_account(bench: StoreBench) -> None:
    """Half of it is left, and all of that is used."""
    await configure(bench, replace(RPM, limit=300))
    provider = VirtualProvider(300)
    workers = VirtualWorkers(bench, provider, workers=2)
    await bench.enqueue(1500)
    await workers.run(30)
    provider.others = 2.5
    begin, end = await workers.run(180)
    assert 0.45 <= provider.use(end - 60, end) <= 0.55
    assert provider.refused_share(begin + 20, end) <= 0.02
