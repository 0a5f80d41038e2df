"""What answers do to the budget and the credential: blocks, storms, breaker, pauses."""

from __future__ import annotations

import time

import pytest

from llmqueue.config import BreakerPolicy, Limit
from llmqueue.outcome import LimitHint
from llmqueue.states import LimitUnit, OutcomeClass, RefusalReason, WaitReason
from llmqueue.store.port import Beat, ClaimReply
from llmqueue.store.snapshots import BudgetSnapshot
from support.storebench import StoreBench

BREAKER = BreakerPolicy(failures=4, window_seconds=60, open_seconds=120, probe_seconds=300)


async def look(bench: StoreBench) -> BudgetSnapshot:
    return await bench.store.snapshot(bench.queue, horizon_seconds=0)


async def pass_time(bench: StoreBench, seconds: float) -> None:
    """Time during which the store stays in use."""
    while seconds > 0:
        await bench.advance(min(4.0, seconds))
        await look(bench)
        seconds -= 4.0


# ---------------------------------------------------------------- 429


async def test_retry_after_blocks_the_whole_budget(bench: StoreBench) -> None:
    """S44, P12: not before T for all; the job keeps its attempts and its place."""
    first, *_ = await bench.enqueue(3)
    await bench.run_one(OutcomeClass.RATE, retry_after_seconds=300)
    job = await bench.store.job(first)
    assert (str(job.state), job.attempts_used, len(job.attempts)) == ("ready", 0, 1)
    reply = await bench.claim(worker="w:2")
    assert reply.reason is WaitReason.BLOCKED
    assert 299 <= reply.wait_seconds <= 300
    await pass_time(bench, 290)
    assert (await bench.claim()).reason is WaitReason.BLOCKED
    await bench.advance(11)
    assert (await bench.take()).id == first


async def test_a_day_of_retry_after(bench: StoreBench) -> None:
    """P11: a Retry-After of a day is "not before", nothing sleeps on it."""
    await bench.enqueue()
    await bench.run_one(OutcomeClass.RATE, retry_after_seconds=86_400)
    assert (await look(bench)).blocked_seconds == pytest.approx(86_400, abs=2)


async def test_sent_is_refused_while_blocked(bench: StoreBench) -> None:
    """A call claimed before the 429 was settled is not sent; its job is free at no cost."""
    await bench.warm()
    await bench.enqueue(2)
    first, second = (await bench.claim(2)).grants
    await bench.send(first)
    await bench.settle(first, OutcomeClass.RATE, retry_after_seconds=30)
    reply = await bench.store.mark_sent(bench.queue, [(second.id, second.fence)], credential="")
    assert reply[0].reason is RefusalReason.BLOCKED
    assert 29 <= reply[0].wait_seconds <= 30
    assert await bench.states() == {"ready": 2}


async def test_429s_in_a_row_back_off(bench: StoreBench) -> None:
    """P12: without Retry-After the schedule holds: 2, 5, 12, 30, 75 s, and no attempt is used."""
    job_id = (await bench.enqueue(max_attempts=1))[0]
    for wait in (2, 5, 12, 30, 75, 75):
        await bench.run_one(OutcomeClass.RATE)
        assert (await look(bench)).blocked_seconds == pytest.approx(wait, abs=0.3)
        await pass_time(bench, wait + 0.1)
    assert (await bench.store.job(job_id)).attempts_used == 0


async def test_429s_of_one_round_count_once(bench: StoreBench) -> None:
    """Eight calls in flight that all meet the same wall are one reason to wait, not eight."""
    await bench.warm()
    await bench.enqueue(8)
    grants = (await bench.claim(8)).grants
    await bench.send(*grants)
    for grant in grants:
        await bench.settle(grant, OutcomeClass.RATE)
    assert (await look(bench)).blocked_seconds == pytest.approx(2, abs=0.3)


async def test_header_derived_wait(bench: StoreBench) -> None:
    """Without Retry-After the exhausted limit's reset says how long, at least the schedule."""
    await bench.enqueue()
    hints = (
        LimitHint("tokens", limit=1000, remaining=900, reset_seconds=900),
        LimitHint("requests", limit=4, remaining=0, reset_seconds=60),
    )
    await bench.run_one(OutcomeClass.RATE, limits=hints)
    assert (await look(bench)).blocked_seconds == pytest.approx(15, abs=0.3)


async def test_many_return_spread_out(bench: StoreBench) -> None:
    """Q30: after Retry-After 30 nothing comes before 30 s, and then slowly."""
    await bench.configure(
        budget={
            "limits": (Limit(LimitUnit.REQUESTS, 6000),),
            "breaker": BreakerPolicy(failures=10_000),
        }
    )
    await bench.warm()
    await bench.enqueue(500)
    grants = (await bench.claim(60)).grants
    await bench.send(*grants)
    for grant in grants:
        await bench.settle(grant, OutcomeClass.RATE, retry_after_seconds=30)
    await pass_time(bench, 29)
    assert not (await bench.claim(60)).grants
    await bench.advance(1.1)
    granted = 0
    for _ in range(20):
        granted += len((await bench.claim(60)).grants)
        await bench.advance(0.1)
    assert 10 <= granted <= 0.6 * 200


async def test_failed_jobs_spread_by_jitter(bench: StoreBench) -> None:
    """Q30: retries of the same failure are spread over at least a fifth of their delay."""
    await bench.configure(budget={"breaker": BreakerPolicy(failures=10_000)})
    await bench.warm()
    await bench.enqueue(40)
    begun = await bench.now_ms()
    for n, grant in enumerate((await bench.claim(40)).grants):
        await bench.send(grant)
        await bench.settle(grant, OutcomeClass.TRANSIENT, retry_after_seconds=30, jitter=n / 40)
    due = [
        score
        for _, score in await bench.redis.zrange(
            bench.key("delayed", bench.queue), 0, -1, withscores=True
        )
    ]
    assert min(due) - begun >= 30_000
    assert max(due) - min(due) >= 0.2 * 30_000


async def test_one_429_lowers_no_rate(bench: StoreBench) -> None:
    """A 429 with Retry-After alone waits and ramps; the rate is not halved."""
    await bench.enqueue(30)
    for _ in range(9):
        await bench.run_one()
    await bench.run_one(OutcomeClass.RATE, retry_after_seconds=1)
    await pass_time(bench, 12)
    assert (await look(bench)).rate_factor == 1


async def test_storm_halves_the_rate(bench: StoreBench) -> None:
    """S42: while more than half of a minute's answers are 429s the rate is halved."""
    await bench.configure(budget={"breaker": BreakerPolicy(failures=10_000)})
    await bench.enqueue(30)
    for _ in range(3):
        await bench.run_one()
    for _ in range(5):
        await bench.run_one(OutcomeClass.RATE, retry_after_seconds=0.5)
        await pass_time(bench, 0.6)
    await pass_time(bench, 12)
    snapshot = await look(bench)
    assert (snapshot.answers, snapshot.answers_rate) == (8, 5)
    assert snapshot.rate_factor == 0.5
    for _ in range(4):
        await bench.run_one()
        await pass_time(bench, 0.5)
    assert (await look(bench)).rate_factor == 1


async def test_slow_down_grows_slowly(bench: StoreBench) -> None:
    """RAMP: halved, back in 120 s."""
    await bench.enqueue(5)
    await bench.run_one(OutcomeClass.RAMP, retry_after_seconds=1)
    await pass_time(bench, 13)
    early = (await look(bench)).rate_factor
    await pass_time(bench, 60)
    later = (await look(bench)).rate_factor
    await pass_time(bench, 60)
    assert 0.5 <= early <= 0.6
    assert 0.7 <= later <= 0.85
    assert (await look(bench)).rate_factor == 1


# ---------------------------------------------------------------- breaker


async def open_breaker(bench: StoreBench) -> None:
    await bench.configure(budget={"breaker": BREAKER})
    await bench.enqueue(20)
    await bench.warm()
    for _ in range(BREAKER.failures):
        await bench.run_one(OutcomeClass.OVERLOAD)
        await bench.advance(0.1)


async def test_breaker_opens_and_probes(bench: StoreBench) -> None:
    """P16, P32: enough failures stop all calls; then one probe; a good one lets them ramp."""
    await open_breaker(bench)
    assert (await look(bench)).breaker == "open"
    reply = await bench.claim(5)
    assert (reply.grants, reply.reason) == ((), WaitReason.BREAKER)
    await pass_time(bench, 121)
    assert (await look(bench)).breaker == "half-open"
    probe = await bench.claim(5)
    assert len(probe.grants) == 1
    assert probe.grants[0].probe
    assert (await bench.claim(5, worker="w:2")).reason is WaitReason.BREAKER
    await bench.send(probe.grants[0])
    await bench.settle(probe.grants[0])
    snapshot = await look(bench)
    assert snapshot.breaker == "closed"
    assert snapshot.rate_factor < 0.5


async def test_failed_probe_waits_longer_and_costs_no_attempt(bench: StoreBench) -> None:
    """A failed probe opens the breaker for probeSeconds; jobs don't fail of it."""
    await open_breaker(bench)
    await pass_time(bench, 121)
    probe = (await bench.claim()).grants[0]
    before = (await bench.store.job(probe.id)).attempts_used
    await bench.send(probe)
    await bench.settle(probe, OutcomeClass.OVERLOAD)
    assert (await look(bench)).breaker_seconds == pytest.approx(300, abs=1)
    assert (await bench.store.job(probe.id)).attempts_used == before


async def test_lost_probe_is_replaced(bench: StoreBench) -> None:
    """A probe whose worker died unsent does not keep the breaker open for ever."""
    await open_breaker(bench)
    await pass_time(bench, 121)
    assert (await bench.claim()).grants
    await pass_time(bench, 14)
    assert (await bench.claim(worker="w:2")).grants[0].probe


async def test_sent_is_refused_while_the_breaker_is_open(bench: StoreBench) -> None:
    await bench.configure(budget={"breaker": BREAKER})
    await bench.warm()
    await bench.enqueue(20)
    grants = (await bench.claim(BREAKER.failures + 1)).grants
    await bench.send(*grants[:-1])
    for grant in grants[:-1]:
        await bench.settle(grant, OutcomeClass.OVERLOAD)
    last = grants[-1]
    reply = await bench.store.mark_sent(bench.queue, [(last.id, last.fence)], credential="")
    assert reply[0].reason is RefusalReason.BREAKER


async def test_bad_requests_leave_the_breaker_alone(bench: StoreBench) -> None:
    """S47: one tenant's 400s are that tenant's."""
    await bench.configure(budget={"breaker": BREAKER})
    await bench.enqueue(20, tenant="bad")
    for _ in range(12):
        await bench.run_one(OutcomeClass.PERMANENT, status=400)
        await bench.advance(0.1)
    assert (await look(bench)).breaker == "closed"


async def test_some_successes_keep_it_closed(bench: StoreBench) -> None:
    """Not more than 80 % failed: the breaker stays closed."""
    await bench.configure(budget={"breaker": BREAKER})
    await bench.enqueue(40)
    for n in range(20):
        kind = OutcomeClass.SUCCESS if n % 4 == 0 else OutcomeClass.OVERLOAD
        await bench.run_one(kind)
        await bench.advance(0.1)
    assert (await look(bench)).breaker == "closed"


async def test_unsent_failures_are_not_the_providers(bench: StoreBench) -> None:
    """P37, P24: a connect error or a full local pool counts for nobody."""
    await bench.configure(budget={"breaker": BREAKER})
    await bench.enqueue(20)
    for _ in range(10):
        await bench.settle(await bench.take(), OutcomeClass.TRANSIENT, sent=False)
        await bench.advance(0.1)
    snapshot = await look(bench)
    assert (snapshot.breaker, snapshot.answers) == ("closed", 0)


# ---------------------------------------------------------------- credential pauses


async def claim_with(bench: StoreBench, credential: str, worker: str = "w:1") -> ClaimReply:
    return await bench.claim(3, worker=worker, credential=credential)


@pytest.mark.parametrize("kind", [OutcomeClass.QUOTA, OutcomeClass.AUTH])
async def test_quota_pauses_the_credential(bench: StoreBench, kind: OutcomeClass) -> None:
    """P14: nothing is sent after the first such answer is settled; jobs stay; other keys go on."""
    await bench.warm()
    await bench.enqueue(6)
    first, second = (await bench.claim(2, credential="k1")).grants
    await bench.send(first, credential="k1")
    await bench.settle(first, kind, credential="k1", message="insufficient_quota")
    reply = await bench.store.mark_sent(bench.queue, [(second.id, second.fence)], credential="k1")
    assert reply[0].reason is RefusalReason.PAUSED
    assert (await claim_with(bench, "k1")).reason is WaitReason.PAUSED
    assert await bench.states() == {"ready": 6}
    assert (await bench.store.job(first.id)).attempts_used == 0
    pause = (await look(bench)).pauses[0]
    assert (pause.credential, pause.kind, pause.message) == ("k1", str(kind), "insufficient_quota")
    assert (await claim_with(bench, "k2")).grants


async def test_pause_until_a_date(bench: StoreBench) -> None:
    """P15: "regain access on <date>": paused until then."""
    await bench.enqueue()
    await bench.run_one(OutcomeClass.QUOTA, pause_until=time.time() + 7200)
    assert (await look(bench)).pauses[0].next_probe_seconds == pytest.approx(7200, abs=2)


async def test_one_probe_lifts_the_pause(bench: StoreBench) -> None:
    """At probe time one job goes; its success lets all go."""
    await bench.enqueue(5)
    await bench.run_one(OutcomeClass.QUOTA)
    await pass_time(bench, 301)
    reply = await claim_with(bench, "")
    assert len(reply.grants) == 1
    assert reply.grants[0].probe
    assert (await claim_with(bench, "", "w:2")).reason is WaitReason.PAUSED
    assert await bench.send(reply.grants[0]) == [True]
    await bench.settle(reply.grants[0])
    assert (await look(bench)).pauses == ()
    await bench.advance(1)
    assert (await claim_with(bench, "")).grants


async def test_failed_probe_keeps_the_pause(bench: StoreBench) -> None:
    await bench.enqueue(5)
    await bench.run_one(OutcomeClass.QUOTA)
    await pass_time(bench, 301)
    await bench.run_one(OutcomeClass.QUOTA)
    assert (await look(bench)).pauses[0].next_probe_seconds == pytest.approx(300, abs=1)


def beat_with(bench: StoreBench, worker: str, credential: str) -> Beat:
    return Beat(queue=bench.queue, worker=worker, slots=1, leases={}, credential=credential)


async def test_a_replaced_key_ends_the_old_one_s_pause(bench: StoreBench) -> None:
    """Nobody uses it any more, and the new one works: whoever replaced it need not say so."""
    await bench.warm()
    await bench.enqueue(5)
    await bench.store.beat(beat_with(bench, "w:1", "old"))
    await bench.run_one(OutcomeClass.AUTH, credential="old")
    await bench.store.beat(beat_with(bench, "w:1", "new"))
    assert (await look(bench)).workers[0].credential == "new"
    await bench.run_one(OutcomeClass.SUCCESS, credential="new")
    assert (await look(bench)).pauses == ()


async def test_a_key_in_use_stays_paused(bench: StoreBench) -> None:
    """Another queue's key works; this one's is still refused, and a worker has it."""
    await bench.warm()
    await bench.enqueue(5)
    await bench.store.beat(beat_with(bench, "w:1", "refused"))
    await bench.store.beat(beat_with(bench, "w:2", "good"))
    await bench.run_one(OutcomeClass.AUTH, credential="refused")
    await bench.run_one(OutcomeClass.SUCCESS, credential="good")
    assert [pause.credential for pause in (await look(bench)).pauses] == ["refused"]


async def test_a_queue_without_workers_keeps_its_pause(bench: StoreBench) -> None:
    """S45: it went to the minimum because of the pause: that nobody uses its key proves nothing."""
    await bench.warm()
    await bench.enqueue(5)
    await bench.run_one(OutcomeClass.QUOTA, credential="exhausted")
    await bench.run_one(OutcomeClass.SUCCESS, credential="another queue's")
    assert [pause.credential for pause in (await look(bench)).pauses] == ["exhausted"]


async def test_resume_probes_now(bench: StoreBench) -> None:
    await bench.enqueue(5)
    await bench.run_one(OutcomeClass.AUTH)
    assert (await claim_with(bench, "")).reason is WaitReason.PAUSED
    assert await bench.store.resume(bench.queue) == 1
    assert (await claim_with(bench, "")).grants[0].probe


async def test_forbidden_pauses_after_three_jobs(bench: StoreBench) -> None:
    """FORBIDDEN fails its job; three distinct ones pause the credential."""
    await bench.enqueue(5)
    for expected in (0, 0, 1):
        await bench.run_one(OutcomeClass.FORBIDDEN, status=403)
        await bench.advance(0.1)
        assert len((await look(bench)).pauses) == expected
    assert await bench.states() == {"ready": 2, "dead": 3}


# ---------------------------------------------------------------- suspend, reset


async def test_suspend(bench: StoreBench) -> None:
    """Suspended: nothing is handed out, running calls finish."""
    await bench.enqueue(3)
    grant = await bench.take()
    await bench.store.set_suspended(bench.queue, True)
    assert (await bench.claim()).reason is WaitReason.SUSPENDED
    assert await bench.send(grant) == [True]
    await bench.settle(grant)
    await bench.store.set_suspended(bench.queue, False)
    await bench.advance(0.1)
    assert (await bench.claim()).grants


async def test_flushall_refuses_until_configured(bench: StoreBench) -> None:
    """P8, S38: no configuration: claims refuse, sent refuses, the snapshot says so."""
    await bench.enqueue(2)
    grant = await bench.take()
    await bench.redis.flushall()
    assert (await bench.claim()).reason is WaitReason.UNCONFIGURED
    assert await bench.send(grant) == [False]
    assert (await look(bench)).epoch is None
    assert (await bench.settle(grant)).verdict == "fenced"
    epoch = await bench.store.configure(bench.budget, [bench.config])
    assert (await look(bench)).epoch == epoch
