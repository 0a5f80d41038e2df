"""Limits: exact windows, pacer, ramp, charges. The clock is the store's own, moved by the tests."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmqueue.config import BudgetConfig, Limit
from llmqueue.outcome import Usage
from llmqueue.states import JobState, LimitUnit, OutcomeClass, WaitReason
from llmqueue.store.port import ClaimReply
from support.storebench import StoreBench

REQUESTS, TOKENS = LimitUnit.REQUESTS, LimitUnit.TOKENS
IN, OUT = LimitUnit.INPUT_TOKENS, LimitUnit.OUTPUT_TOKENS


async def run_for(
    bench: StoreBench, seconds: float, *, workers: int = 1, slots: int = 8, step: float = 0.1
) -> list[tuple[int, int]]:
    """Claim, send and settle whatever is granted, each worker when it was told to come; returns
    (server ms, reserved tokens) of what was sent."""
    log: list[tuple[int, int]] = []
    start = await bench.now_ms()
    due = {f"w{n}:1": float(start) for n in range(workers)}
    while (now := await bench.now_ms()) < start + seconds * 1000:
        for worker, at in due.items():
            if at > now:
                continue
            reply = await bench.claim(slots, worker=worker)
            due[worker] = now + max(1.0, min(5.0, reply.wait_seconds) * 1000)
            if reply.grants:
                await bench.send(*reply.grants)
                sent_at = await bench.now_ms()
                for grant in reply.grants:
                    log.append((sent_at, max(grant.input_tokens, grant.output_tokens)))
                    await bench.settle(grant, usage=Usage(grant.input_tokens, 1))
        await bench.advance(step)
    return log


def worst_window(log: list[tuple[int, int]], seconds: float, *, tokens: bool = False) -> int:
    """Most that any window of `seconds` and half a second of travel holds."""
    reach = seconds * 1000 + 500
    return max(
        sum(amount if tokens else 1 for other, amount in log if at <= other < at + reach)
        for at, _ in log
    )


async def test_no_window_over_and_the_budget_used(bench: StoreBench) -> None:
    """P2, Q19: eight processes at 100 RPM, 500 jobs: no 60 s window over, each nearly full."""
    await bench.configure(budget={"limits": (Limit(REQUESTS, 100),)})
    await bench.enqueue(500)
    log = await run_for(bench, 3 * 61.5, workers=8, step=0.25)
    assert worst_window(log, 60) <= 100
    first = log[0][0]
    used = sum(1 for at, _ in log if at <= first + 3 * 61_500)
    assert used / (100 * 3 * 61.5 / 60) >= 0.96


async def test_token_window_with_large_jobs(bench: StoreBench) -> None:
    """P1, Q27: 4k-token jobs at 20k TPM: five at a time fit a window exactly, never a sixth."""
    await bench.configure(budget={"limits": (Limit(TOKENS, 20_000),)})
    await bench.enqueue(30, tokens=(100, 4000))
    log = await run_for(bench, 121.5, workers=2, slots=25, step=0.5)
    assert worst_window(log, 60, tokens=True) <= 20_000
    assert sum(amount for _, amount in log) == 40_000


async def test_shared_small_tokens(bench: StoreBench) -> None:
    """P1: four workers share 1,000 TPM with 100-token jobs; at least 95 % is used."""
    await bench.configure(budget={"limits": (Limit(TOKENS, 1000),)})
    await bench.enqueue(60, tokens=(10, 100))
    log = await run_for(bench, 2 * 61.5, workers=4, step=0.5)
    assert worst_window(log, 60, tokens=True) <= 1000
    assert sum(amount for _, amount in log) / (1000 * 2 * 61.5 / 60) >= 0.95


async def test_burst_at_the_end_of_a_window(bench: StoreBench) -> None:
    """Q20: one job, then a burst as the minute ends: a fixed window would give 199 of 100."""
    await bench.configure(budget={"limits": (Limit(REQUESTS, 100),)})
    await bench.enqueue(1)
    log = await run_for(bench, 59, step=1.0)
    await bench.enqueue(300)
    log += await run_for(bench, 70, step=0.25)
    assert worst_window(log, 60) <= 100


async def test_one_a_minute(bench: StoreBench) -> None:
    """Q22: 1/min, ten jobs, one attempt each: all succeed."""
    await bench.configure(budget={"limits": (Limit(REQUESTS, 1),)})
    ids = await bench.enqueue(10, max_attempts=1)
    log = await run_for(bench, 10 * 61.6, step=0.5)
    assert len(log) == 10
    assert worst_window(log, 60) == 1
    assert {await bench.state(i) for i in ids} == {"succeeded"}


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    limit=st.integers(3, 40),
    moves=st.lists(
        st.tuples(st.floats(0.05, 4.0), st.integers(1, 10), st.integers(1, 300)),
        min_size=20,
        max_size=60,
    ),
)
async def test_any_arrival_pattern(
    bench: StoreBench, limit: int, moves: list[tuple[float, int, int]]
) -> None:
    """However claims and sizes fall, no window holds more than either limit."""
    window = 10
    tokens = limit * 60
    await bench.redis.flushall()
    await bench.configure(
        budget={"limits": (Limit(REQUESTS, limit, window), Limit(TOKENS, tokens, window))}
    )
    log: list[tuple[int, int]] = []
    for wait, slots, size in moves:
        await bench.enqueue(slots, tokens=(1, min(size, tokens)))
        await bench.advance(wait)
        reply = await bench.claim(slots)
        await bench.advance(0.45)
        if reply.grants:
            assert all(await bench.send(*reply.grants))
            now = await bench.now_ms()
            log += [(now, grant.output_tokens) for grant in reply.grants]
    if log:
        assert worst_window(log, window) <= limit
        assert worst_window(log, window, tokens=True) <= tokens


async def test_denied_claim_changes_no_level(bench: StoreBench) -> None:
    """P3, Q21: in flight full, or tokens empty: requests stay as they were over 1,000 claims."""
    await bench.configure(
        budget={"limits": (Limit(REQUESTS, 600), Limit(TOKENS, 150)), "max_in_flight": 50}
    )
    await bench.enqueue(5, tokens=(1, 100))
    await bench.take()
    before = (await bench.store.snapshot(bench.queue, horizon_seconds=0)).win_levels
    for n in range(1000):
        reply = await bench.claim(worker=f"w:{n % 7}")
        assert not reply.grants
        assert reply.reason is WaitReason.TOKENS
    after = (await bench.store.snapshot(bench.queue, horizon_seconds=0)).win_levels
    assert before == after == {"requests/60": 1, "tokens/60": 100}


async def test_in_flight_full(bench: StoreBench) -> None:
    """P3: at maxInFlight a claim is refused and charges nothing; a settle makes room."""
    await bench.configure(budget={"limits": (Limit(REQUESTS, 10**6),), "max_in_flight": 3})
    await bench.warm()
    await bench.enqueue(5)
    reply = await bench.claim(5)
    assert (len(reply.grants), reply.reason) == (3, WaitReason.IN_FLIGHT)
    assert (await bench.claim(5)).grants == ()
    assert (await bench.store.snapshot(bench.queue, horizon_seconds=0)).win_levels == {
        "requests/60": 3
    }
    await bench.send(reply.grants[0])
    await bench.settle(reply.grants[0])
    assert len((await bench.claim(5)).grants) == 1


async def test_order_survives_refusals(bench: StoreBench) -> None:
    """Q23: limited claims, releases and refusals leave the order as it was."""
    await bench.configure(budget={"limits": (Limit(REQUESTS, 600),)})
    ids = await bench.enqueue(12)
    first = await bench.claim(3)
    assert [g.id for g in first.grants] == ids[: len(first.grants)]
    for grant in reversed(first.grants):
        await bench.store.release(bench.queue, [(grant.id, grant.fence)])
    done: list[str] = []
    while len(done) < len(ids):
        reply = await bench.claim(5)
        done += [grant.id for grant in reply.grants]
        await bench.advance(max(0.01, reply.wait_seconds))
    assert done == ids


async def claims_and_grants(bench: StoreBench, workers: int, seconds: float) -> tuple[int, int]:
    """Simulated pumps that come when told: (claims, grants)."""
    start = await bench.now_ms()
    due = {f"w{n}:1": float(start) for n in range(workers)}
    claims = grants = 0
    while True:
        worker, at = min(due.items(), key=lambda item: item[1])
        if at > start + seconds * 1000:
            return claims, grants
        now = await bench.now_ms()
        if at > now:
            await bench.advance((at - now) / 1000)
        reply: ClaimReply = await bench.claim(4, worker=worker)
        claims += 1
        grants += len(reply.grants)
        for grant in reply.grants:
            await bench.send(grant)
            await bench.settle(grant)
        due[worker] = await bench.now_ms() + max(1.0, min(5.0, reply.wait_seconds) * 1000)


async def test_one_claim_per_grant_while_limited(bench: StoreBench) -> None:
    """While limited, about one claim a grant in all, not one a worker."""
    await bench.configure(budget={"limits": (Limit(REQUESTS, 600),)})
    await bench.enqueue(500)
    claims, grants = await claims_and_grants(bench, workers=10, seconds=30)
    assert grants >= 0.95 * 300
    assert claims <= 1.25 * grants + 10


async def test_a_closed_budget_leaves_another_one_alone(bench: StoreBench) -> None:
    """Q25: A is closed with very many jobs (here 20,000): B's claims are granted at once, and A costs
    about one claim a grant in all once it opens."""
    await bench.configure(budget={"limits": (Limit(REQUESTS, 600),)})
    for _ in range(20):
        await bench.enqueue(1000)
    other = StoreBench(
        bench.store,
        queue="default/b",
        budget=replace(bench.budget, budget="default/b", limits=(Limit(REQUESTS, 10**6),)),
        config=replace(bench.config, queue="default/b", budget="default/b"),
    )
    await other.configure()
    await other.enqueue(20)
    await other.warm()
    await bench.run_one(OutcomeClass.RATE, retry_after_seconds=300)
    for _ in range(20):
        assert (await bench.claim(8)).grants == ()
        grant = await other.take()
        assert await other.send(grant) == [True]
        await other.settle(grant)
    await bench.advance(300)
    claims, grants = await claims_and_grants(bench, workers=10, seconds=30)
    assert grants >= 0.8 * 300, "ten seconds of it are a ramp"
    assert claims <= 1.25 * grants + 10


async def test_ideal_drain_time(bench: StoreBench) -> None:
    """Q24: limited jobs are drained in at most 1.05 times the ideal (61.5 s a window)."""
    await bench.configure(budget={"limits": (Limit(REQUESTS, 200),)})
    await bench.enqueue(1000)
    start = await bench.now_ms()
    log = await run_for(bench, 4 * 61.5 + 60.5, workers=4, slots=16, step=0.2)
    assert len(log) == 1000
    ideal = 4 * 61.5 + 200 / (200 / 60 * 1.03)
    assert (log[-1][0] - start) / 1000 <= 1.05 * ideal


async def test_ramp_after_idle(bench: StoreBench) -> None:
    """Q28: a budget that was used, then idle for ten minutes, comes back slowly."""
    await bench.configure(budget={"limits": (Limit(REQUESTS, 600),)})
    await bench.enqueue(1)
    await bench.run_one()
    await bench.advance(601)
    await bench.enqueue(200)
    early = await run_for(bench, 2, step=0.1)
    assert 1 <= len(early) <= 8
    later = await run_for(bench, 10, step=0.1)
    assert len(later) >= 50


async def test_cold_start_has_no_ramp(bench: StoreBench) -> None:
    """A budget that never charged starts at the pacer's full rate."""
    await bench.configure(budget={"limits": (Limit(REQUESTS, 600),)})
    await bench.enqueue(200)
    assert len(await run_for(bench, 3, step=0.1)) >= 28


async def test_clock_steps_back(bench: StoreBench) -> None:
    """The server's clock steps back an hour: limits neither freeze nor refill twice."""
    await bench.configure(budget={"limits": (Limit(REQUESTS, 60),)})
    await bench.enqueue(100)
    assert await run_for(bench, 5, step=0.25)
    await bench.redis.hincrby(bench.key("run"), "off", -3_600_000)
    log = await run_for(bench, 5, step=0.25)
    assert 3 <= len(log) <= 7


async def test_limits_change_live(bench: StoreBench) -> None:
    """A lower limit counts at once, for what was charged before too; a raised one opens at once."""
    await bench.configure(budget={"limits": (Limit(REQUESTS, 600),)})
    await bench.enqueue(100)
    log = await run_for(bench, 3, step=0.1)
    await bench.configure(budget={"limits": (Limit(REQUESTS, len(log)),)})
    reply = await bench.claim(5)
    assert reply.reason is WaitReason.REQUESTS
    assert reply.wait_seconds > 50
    await bench.configure(budget={"limits": (Limit(REQUESTS, 6000),)})
    await bench.advance(0.2)
    assert (await bench.claim(5)).grants


async def test_too_large_since_the_limit_was_lowered(bench: StoreBench) -> None:
    """P5: a job above a limit that was lowered later ends dead and blocks nobody."""
    await bench.configure(budget={"limits": (Limit(TOKENS, 1000),)})
    large, small = (await bench.enqueue(1, tokens=(1, 900)))[0], (await bench.enqueue(1))[0]
    await bench.configure(budget={"limits": (Limit(TOKENS, 500),)})
    assert (await bench.take()).id == small
    job = await bench.store.job(large)
    assert job.state is JobState.DEAD
    assert job.error
    assert "too large" in job.error["reason"]


CHARGES = {
    # outcome: (requests, input, output, tokens) that stay charged of (1, 100, 500, 500)
    "keep-success": ("keep", OutcomeClass.SUCCESS, Usage(80, 50), (1, 100, 500, 500)),
    "keep-error": ("keep", OutcomeClass.TRANSIENT, None, (1, 100, 500, 500)),
    "correct-success": ("correct", OutcomeClass.SUCCESS, Usage(80, 50), (1, 80, 50, 80)),
    "correct-more": ("correct", OutcomeClass.SUCCESS, Usage(180, 50), (1, 180, 50, 180)),
    "correct-error": ("correct", OutcomeClass.PERMANENT, None, (1, 0, 0, 0)),
    "correct-429": ("correct", OutcomeClass.RATE, None, (1, 0, 0, 0)),
    "correct-malformed": ("correct", OutcomeClass.MALFORMED, None, (1, 100, 500, 500)),
    "correct-error-event": ("correct", OutcomeClass.OVERLOAD, Usage(100, 7), (1, 100, 7, 100)),
    "correct-unknown": ("correct", OutcomeClass.UNKNOWN, None, (1, 100, 500, 500)),
    "keep-unsent": ("keep", None, None, (0, 0, 0, 0)),
    "correct-unsent": ("correct", None, None, (0, 0, 0, 0)),
}


@pytest.mark.parametrize(
    ("accounting", "kind", "usage", "left"), CHARGES.values(), ids=CHARGES.keys()
)
async def test_charge_table(
    bench: StoreBench,
    accounting: str,
    kind: OutcomeClass | None,
    usage: Usage | None,
    left: tuple[int, int, int, int],
) -> None:
    """What each outcome leaves charged in the windows."""
    limits = tuple(Limit(unit, 10**6) for unit in (REQUESTS, IN, OUT, TOKENS))
    await bench.configure(budget={"limits": limits, "token_accounting": accounting})
    await bench.enqueue(1, tokens=(100, 500))
    grant = await bench.take()
    if kind is None:
        await bench.settle(grant, OutcomeClass.TRANSIENT, sent=False)
    else:
        await bench.send(grant)
        await bench.settle(grant, kind, usage=usage)
    levels = (await bench.store.snapshot(bench.queue, horizon_seconds=0)).win_levels
    assert tuple(levels[limit.name] for limit in limits) == left


async def test_refund_opens_the_pacer_too(bench: StoreBench) -> None:
    """Q27: a refund goes back to window and pacer, once however often it is settled."""
    await bench.configure(budget={"limits": (Limit(TOKENS, 6000),), "token_accounting": "correct"})
    await bench.enqueue(5, tokens=(10, 3000))
    grant = await bench.take()
    await bench.send(grant)
    assert (await bench.claim()).reason is WaitReason.TOKENS
    await bench.settle(grant, usage=Usage(10, 30))
    await bench.settle(grant, usage=Usage(10, 30))
    assert (await bench.store.snapshot(bench.queue, horizon_seconds=0)).win_levels == {
        "tokens/60": 30
    }
    await bench.advance(0.4)
    assert (await bench.claim()).grants


async def test_learned_output_quantile(bench: StoreBench) -> None:
    """Where the provider counts what is produced, a learned high quantile is reserved."""
    await bench.configure(
        budget={
            "limits": (Limit(OUT, 10**7),),
            "token_accounting": "correct",
            "learned_output": True,
        }
    )
    await bench.enqueue(40, tokens=(10, 4000))
    for _ in range(30):
        await bench.run_one(usage=Usage(10, 200))
    assert 200 <= (await bench.take()).output_tokens <= 400


async def test_input_ratio_is_learned(bench: StoreBench) -> None:
    """Estimates of input follow what the provider reports."""
    await bench.configure(budget={"limits": (Limit(IN, 10**7),)})
    await bench.enqueue(120, tokens=(100, 10))
    for _ in range(100):
        await bench.run_one(usage=Usage(200, 5))
    assert 180 <= (await bench.take()).input_tokens <= 205


async def test_late_send_is_charged_anew(bench: StoreBench) -> None:
    """A claim older than 500 ms moves to the present; where the window is full by then, it is
    refused at no cost."""
    await bench.configure(budget={"limits": (Limit(REQUESTS, 2, 10),)})
    await bench.enqueue(3)
    grant = await bench.take()
    await bench.advance(2)
    assert await bench.send(grant) == [True]
    sent_at = await bench.now_ms()
    await bench.settle(grant)
    await bench.advance(3)
    assert await bench.send(await bench.take()) == [True]
    await bench.advance(7.5)
    assert 10_400 < (await bench.now_ms()) - sent_at < 11_000
    assert not (await bench.claim()).grants, "the first charge left with its claim, not its send"


async def test_what_is_sent_in_a_later_sub_window_counts_there(bench: StoreBench) -> None:
    """However short the way from claim to send was: a whole second is left for the rest of it."""
    await bench.configure(budget={"limits": (Limit(REQUESTS, 60),)})
    await bench.enqueue(1)
    grant = await bench.take()
    await bench.advance((500 - await bench.now_ms() % 500 + 5) / 1000)
    assert await bench.send(grant) == [True]
    window = await bench.redis.hgetall(bench.key("win", "requests/60"))
    charges = {int(name): int(value) for name, value in window.items() if name.isdigit()}
    index = await bench.now_ms() // 500
    assert charges.pop(index) == 1
    assert not any(charges.values()), "it is charged twice"


async def test_late_send_into_a_full_window_is_refused(bench: StoreBench) -> None:
    await bench.configure(budget={"limits": (Limit(REQUESTS, 1, 2),), "lease_seconds": 60})
    await bench.enqueue(2)
    early = await bench.take()
    await bench.advance(3.6)
    later = await bench.take(worker="w:2")
    assert await bench.send(early) == [False]
    assert await bench.send(later) == [True]
    assert await bench.state(early.id) == "ready"


def test_budget_defaults() -> None:
    assert BudgetConfig("b", ()).token_accounting == "keep"
