"""Tenants and features in turn, limits of single tenants and bands, and who is seen to wait."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import pytest

from llmqueue.config import Limit, TenantLimits
from llmqueue.states import JobState, LimitUnit, OutcomeClass, WaitReason
from llmqueue.store.port import Grant
from support.handlerbench import acquire, end_run, make_call
from support.storebench import StoreBench, after_lease, beat


async def limited(bench: StoreBench, **limits: int) -> None:
    await bench.configure(queue={"per_tenant": TenantLimits(**limits)})
    await bench.warm()


async def taken(bench: StoreBench, count: int, *, slots: int = 1) -> list[Grant]:
    """The next `count` grants, each settled at once, `slots` a claim."""
    found: list[Grant] = []
    while len(found) < count:
        reply = await bench.claim(slots)
        assert reply.grants, f"{len(found)} of {count}: {reply.reason} {reply.wait_seconds}"
        await bench.send(*reply.grants)
        for grant in reply.grants:
            await bench.settle(grant)
        found += reply.grants
    return found


def tenants(grants: Iterable[Grant]) -> str:
    return "".join(grant.tenant for grant in grants)


# ---------------------------------------------------------------- turns


@pytest.mark.parametrize("slots", [1, 3, 16])
async def test_a_tenant_with_few_jobs_is_not_behind_one_with_many(
    bench: StoreBench, slots: int
) -> None:
    """P33: A has 10,000 jobs, B comes later with 10: each waits at most 2 rounds, all are done
    within 22 grants."""
    for _ in range(10):
        await bench.enqueue(1000, tenant="a")
    await bench.warm()
    await taken(bench, 16)
    mine = set(await bench.enqueue(10, tenant="b"))
    done = await taken(bench, 22, slots=slots)
    assert mine <= {grant.id for grant in done[:22]}
    assert max(len(list(run)) for tenant, run in itertools.groupby(tenants(done[:19]))) <= 2


@pytest.mark.parametrize("slots", [1, 2, 5, 16])
async def test_many_tenants_take_turns_in_their_order(bench: StoreBench, slots: int) -> None:
    """Each of 40 tenants has its turn in every round, however many jobs a claim takes."""
    names = [f"t{n:02}" for n in range(40)]
    for name in names:
        await bench.enqueue(3, tenant=name)
    await bench.warm()
    done = [grant.tenant for grant in await taken(bench, 120, slots=slots)]
    assert done == names * 3


async def test_features_take_turns_inside_their_tenant(bench: StoreBench) -> None:
    """A tenant with three features gets one turn a round, not three."""
    for feature in ("x", "y", "z"):
        await bench.enqueue(2, tenant="a", feature=feature)
    await bench.enqueue(6, tenant="b")
    await bench.warm()
    done = await taken(bench, 12, slots=5)
    assert tenants(done) == "ab" * 6
    assert [g.feature for g in done if g.tenant == "a"] == ["x", "y", "z"] * 2


async def test_one_lane_is_taken_in_its_order(bench: StoreBench) -> None:
    ids = await bench.enqueue(40, tenant="only", feature="f")
    await bench.warm()
    assert [g.id for g in await taken(bench, 40, slots=16)] == ids


async def test_a_lane_that_comes_back_waits_its_turn(bench: StoreBench) -> None:
    """A lane that ran empty and gets a job again is behind those that wait."""
    await bench.enqueue(1, tenant="a")
    await bench.enqueue(3, tenant="b")
    await bench.warm()
    first = await taken(bench, 1)
    await bench.enqueue(1, tenant="a")
    assert tenants([*first, *await taken(bench, 4, slots=2)]) == "abab" + "b"


async def test_cancelled_heads_cost_no_turn(bench: StoreBench) -> None:
    """Entries of jobs that are no more are passed over, and nobody loses a turn by them."""
    gone = await bench.enqueue(5, tenant="a")
    kept = await bench.enqueue(2, tenant="a")
    other = await bench.enqueue(2, tenant="b")
    for job_id in gone:
        await bench.store.cancel(job_id)
    await bench.warm()
    done = [grant.id for grant in await taken(bench, 4, slots=4)]
    assert done == [kept[0], other[0], kept[1], other[1]]


async def test_a_refused_budget_costs_no_turn(bench: StoreBench) -> None:
    """Q23: the order before a limit is the order after it."""
    await bench.configure(budget={"limits": (Limit(LimitUnit.REQUESTS, 2),)})
    for name in "abcdef":
        await bench.enqueue(1, tenant=name)
    await bench.warm()
    order = ""
    for _ in range(8):
        for grant in (await bench.claim(16)).grants:
            order += grant.tenant
            await bench.send(grant)
            await bench.settle(grant)
        await bench.advance(31)
    assert order == "abcdef"


# ---------------------------------------------------------------- a tenant's own limits


async def test_a_tenant_at_its_calls_in_flight_is_parked(bench: StoreBench) -> None:
    """Its jobs keep their place, the others go on, and the end of a call brings it back."""
    await limited(bench, max_in_flight=2)
    mine = await bench.enqueue(5, tenant="a")
    await bench.enqueue(1, tenant="b")
    grants = list((await bench.claim(16)).grants)
    assert sorted(tenants(grants)) == ["a", "a", "b"]
    reply = await bench.claim(16)
    assert (reply.grants, reply.reason) == ((), WaitReason.EMPTY)
    assert 0 < reply.wait_seconds <= 5
    await bench.send(*grants)
    await bench.settle(next(grant for grant in grants if grant.tenant == "a"))
    assert [grant.id for grant in (await bench.claim(16)).grants] == [mine[2]]
    assert (await bench.claim(16)).grants == ()


async def test_the_end_of_a_call_wakes_whoever_waits_for_its_tenant(bench: StoreBench) -> None:
    await limited(bench, max_in_flight=1)
    await bench.enqueue(2, tenant="a")
    grant = await bench.take()
    await bench.claim(1)
    while await bench.store.wait_for_work(bench.queue, 0.01):
        pass
    await bench.send(grant)
    await bench.settle(grant)
    assert await bench.store.wait_for_work(bench.queue, 0.5)


async def test_a_lost_call_frees_its_tenants_place(bench: StoreBench) -> None:
    """P4, Q29: by the lease, by a release, by a cancellation."""
    await limited(bench, max_in_flight=1)
    await bench.enqueue(4, tenant="a")
    lost = await bench.take()
    await after_lease(bench)
    again = await bench.take(worker="w:2")
    assert again.id == lost.id
    await bench.store.release(bench.queue, [(again.id, again.fence)])
    held = await bench.take(worker="w:3")
    await bench.store.cancel(held.id)
    assert (await bench.claim(8, worker="w:4")).grants != ()
    assert await bench.redis.hgetall(bench.key("th", bench.queue)) == {b"a": b"1"}


@pytest.mark.parametrize("slots", [1, 16])
async def test_a_tenants_calls_a_second(bench: StoreBench, slots: int) -> None:
    """Ten at once after a pause, five a second from then on; another tenant is not held up."""
    await limited(bench, requests_per_second=5, burst=10)
    await bench.enqueue(100, tenant="a")
    await bench.enqueue(30, tenant="b")
    counts = {"a": 0, "b": 0}
    for _ in range(40):
        for grant in (await bench.claim(slots)).grants:
            counts[grant.tenant] += 1
        if counts["a"] >= 10 and counts["b"] >= 10:
            break
    assert counts == {"a": 10, "b": 10}
    for _ in range(30):
        await bench.advance(0.1)
        for grant in (await bench.claim(slots)).grants:
            counts[grant.tenant] += 1
    assert 24 <= counts["a"] <= 26
    assert 24 <= counts["b"] <= 26


async def test_the_told_wait_is_that_of_the_first_tenant_to_go_on(bench: StoreBench) -> None:
    await limited(bench, requests_per_second=2, burst=1)
    await bench.enqueue(3, tenant="a")
    await bench.take()
    reply = await bench.claim(4)
    assert reply.reason is WaitReason.EMPTY
    assert reply.wait_seconds == pytest.approx(0.5, abs=0.05)
    await bench.advance(reply.wait_seconds)
    assert len((await bench.claim(4)).grants) == 1


async def test_a_call_that_was_not_sent_is_not_counted(bench: StoreBench) -> None:
    await limited(bench, requests_per_second=1, burst=1)
    await bench.enqueue(2, tenant="a")
    grant = await bench.take()
    await bench.store.release(bench.queue, [(grant.id, grant.fence)])
    again = await bench.take()
    assert again.id == grant.id
    assert (await bench.claim(1)).grants == ()


async def test_a_returned_job_waits_for_its_tenant_and_not_before_others(
    bench: StoreBench,
) -> None:
    """A limited tenant's returned jobs do not stand in the way of anybody, and keep their order."""
    await limited(bench, requests_per_second=1, burst=2)
    await bench.enqueue(4, tenant="a")
    grants = (await bench.claim(2)).grants
    await bench.send(*grants)
    await bench.configure(queue={"per_tenant": TenantLimits(max_in_flight=1)})
    for grant in grants:
        await bench.settle(grant, OutcomeClass.RATE, retry_after_seconds=1.0)
    await bench.advance(20)
    others = await bench.enqueue(2, tenant="b")
    await bench.warm()
    done = (await bench.claim(8)).grants
    assert sorted(tenants(done)) == ["a", "b"]
    assert next(g.id for g in done if g.tenant == "a") == grants[0].id
    assert next(g.id for g in done if g.tenant == "b") == others[0]
    await bench.send(*done)
    await bench.settle(next(g for g in done if g.tenant == "a"))
    assert (await bench.take()).id == grants[1].id


async def test_a_suspect_job_of_a_limited_tenant_comes_back(bench: StoreBench) -> None:
    """One whose worker died stays at the front, where suspects are handed out one at a time."""
    await limited(bench, max_in_flight=1)
    first, _ = await bench.enqueue(2, tenant="a")
    await bench.take()
    await after_lease(bench)
    await beat(bench, "w:2")
    again = await bench.take(worker="w:2")
    assert (again.id, again.crashes) == (first, 1)


async def test_limits_that_are_set_while_jobs_run_count_those(bench: StoreBench) -> None:
    await bench.enqueue(4, tenant="a")
    await bench.warm()
    held = (await bench.claim(2)).grants
    await bench.configure(queue={"per_tenant": TenantLimits(max_in_flight=3)})
    assert len((await bench.claim(8)).grants) == 1
    await bench.configure(queue={"per_tenant": None})
    assert len((await bench.claim(8)).grants) == 1
    await bench.send(*held)
    await bench.configure(queue={"per_tenant": TenantLimits(max_in_flight=4)})
    await bench.enqueue(4, tenant="a")
    assert (await bench.claim(8)).grants == ()
    await bench.settle(held[0])
    assert len((await bench.claim(8)).grants) == 1


async def test_limits_that_are_set_while_a_failure_job_runs_do_not_count_it(
    bench: StoreBench,
) -> None:
    """It takes no place of its tenant's: counted once and freed never, it would hold one for ever."""
    await bench.configure(queue={"handlers": True})
    await bench.enqueue(handler="h", tenant="a")
    await end_run(bench, await bench.take(), kind=OutcomeClass.PERMANENT, message="no")
    failure = await bench.take()
    await limited(bench, max_in_flight=1)
    await end_run(bench, failure)
    await bench.enqueue(tenant="a")
    assert (await bench.take()).tenant == "a"


async def test_jobs_without_a_tenant_are_one(bench: StoreBench) -> None:
    await limited(bench, max_in_flight=1)
    await bench.enqueue(3)
    await bench.enqueue(1, feature="f")
    assert len((await bench.claim(8)).grants) == 1


async def test_parked_jobs_can_be_cancelled_and_expire(bench: StoreBench) -> None:
    await limited(bench, max_in_flight=1)
    await bench.enqueue(1, tenant="a")
    grant = await bench.take()
    waits, late = (
        await bench.enqueue(1, tenant="a"),
        await bench.enqueue(1, tenant="a", deadline_seconds=5.0),
    )
    await bench.claim(4)
    await bench.store.cancel(waits[0])
    await bench.advance(6)
    await bench.send(grant)
    await bench.settle(grant)
    assert (await bench.claim(4)).grants == ()
    assert await bench.state(waits[0]) == JobState.CANCELLED
    assert await bench.state(late[0]) == JobState.EXPIRED
    fresh = await bench.enqueue(1, tenant="a")
    assert (await bench.take()).id == fresh[0]


# ---------------------------------------------------------------- bands


async def test_a_band_at_its_calls_in_flight_lets_others_pass(bench: StoreBench) -> None:
    await bench.configure(queue={"band_max_in_flight": (None, None, None, 2)})
    low = await bench.enqueue(4, priority=1)
    await bench.enqueue(1, priority=5)
    await bench.warm()
    grants = (await bench.claim(8)).grants
    assert len(grants) == 3
    reply = await bench.claim(8)
    assert (reply.grants, reply.reason) == ((), WaitReason.IN_FLIGHT)
    await bench.send(*grants)
    await bench.settle(next(grant for grant in grants if grant.id in low))
    assert [grant.id for grant in (await bench.claim(8)).grants] == [low[2]]


async def test_a_full_band_does_not_use_the_turn_of_lower_ones(bench: StoreBench) -> None:
    """Q33: with the urgent band at its limit the rest goes on."""
    await bench.configure(queue={"band_max_in_flight": (1, None, None, None)})
    await bench.enqueue(50, priority=10)
    await bench.enqueue(3, priority=1)
    await bench.warm()
    grants = (await bench.claim(16)).grants
    assert len(grants) == 4


# ---------------------------------------------------------------- what is seen


async def test_only_what_tenants_may_run_is_claimable(bench: StoreBench) -> None:
    """Backlog caused by a limit is no reason for more workers."""
    await limited(bench, max_in_flight=2)
    await bench.enqueue(100, tenant="a")
    await bench.enqueue(1, tenant="b")
    seen = (await bench.store.snapshot(bench.queue, horizon_seconds=0)).queues[0]
    assert (seen.states[JobState.READY], seen.claimable) == (101, 3)
    await bench.claim(16)
    seen = (await bench.store.snapshot(bench.queue, horizon_seconds=0)).queues[0]
    assert (seen.states[JobState.LEASED], seen.claimable) == (3, 0)
    assert (seen.tenants_waiting, seen.tenants_parked) == (1, 1)


async def test_a_rate_of_tenants_bounds_what_is_claimable(bench: StoreBench) -> None:
    """Ten calls a second of 10 s each are a hundred at the same time."""
    await limited(bench, requests_per_second=1)
    await bench.enqueue(500, tenant="a")
    await bench.enqueue(4, tenant="b")
    seen = (await bench.store.snapshot(bench.queue, horizon_seconds=0)).queues[0]
    assert seen.claimable == 10 + 4


async def test_very_many_tenants_are_estimated(bench: StoreBench) -> None:
    await limited(bench, max_in_flight=1)
    for start in range(0, 1000, 50):
        jobs = [bench.new(tenant=f"t{start + n}") for n in range(50) for _ in range(2)]
        await bench.store.enqueue(jobs)
    seen = (await bench.store.snapshot(bench.queue, horizon_seconds=0)).queues[0]
    assert 900 <= seen.claimable <= 1100
    assert seen.tenants_waiting == 1000


async def test_bands_bound_what_is_claimable(bench: StoreBench) -> None:
    await bench.configure(queue={"band_max_in_flight": (None, None, 4, 1)})
    await bench.enqueue(10, priority=10)
    await bench.enqueue(10, priority=5)
    await bench.enqueue(10, priority=1)
    await bench.warm()
    seen = (await bench.store.snapshot(bench.queue, horizon_seconds=0)).queues[0]
    assert seen.claimable == 10 + 4 + 1
    assert seen.ready_by_band == (10, 0, 10, 10)
    await bench.claim(16)
    seen = (await bench.store.snapshot(bench.queue, horizon_seconds=0)).queues[0]
    assert seen.claimable == 0


async def test_who_waits(bench: StoreBench) -> None:
    """The tenants of a queue as a person sees them, those that wait for most first."""
    await limited(bench, max_in_flight=1, requests_per_second=1)
    await bench.enqueue(5, tenant="a")
    await bench.enqueue(2, tenant="b", priority=9)
    await bench.enqueue(1, tenant="b", feature="f")
    await bench.claim(16)
    await bench.claim(16)
    rows = await bench.store.tenants(bench.queue, limit=10)
    assert [(row.tenant, row.waiting, row.in_flight) for row in rows] == [("a", 4, 1), ("b", 2, 1)]
    assert all(row.parked_seconds > 0 for row in rows)
    assert [row.tenant for row in await bench.store.tenants(bench.queue, limit=1)] == ["a"]


async def test_jobs_of_a_parked_tenant_are_among_the_ready(bench: StoreBench) -> None:
    await limited(bench, max_in_flight=1)
    ids = await bench.enqueue(3, tenant="a")
    await bench.take()
    assert (await bench.claim()).grants == ()
    ready = await bench.store.jobs(bench.queue, JobState.READY)
    assert [job.id for job in ready] == ids[1:]


async def test_why_a_job_of_a_parked_tenant_waits(bench: StoreBench) -> None:
    await limited(bench, max_in_flight=1)
    ids = await bench.enqueue(2, tenant="a")
    await bench.claim(2)
    await bench.claim(2)
    answer = await bench.store.explain(ids[1])
    assert answer["reason"] == "its tenant is at its own limit (spec.limits.perTenant)"


# ---------------------------------------------------------------- handlers


async def test_each_call_of_a_handler_counts_for_its_tenant(bench: StoreBench) -> None:
    """Calls a second are calls, not jobs: a job of many waits like many jobs of one."""
    await bench.configure(queue={"handlers": True})
    await limited(bench, requests_per_second=1, burst=2)
    await bench.enqueue(1, tenant="a", handler="h")
    await bench.enqueue(1, tenant="b", handler="h")
    mine, other = (await bench.claim(2)).grants
    await make_call(bench, mine, 1)
    await make_call(bench, mine, 2)
    reply = await acquire(bench, mine, 3)
    assert (reply.verdict, reply.reason) == ("wait", WaitReason.TENANT)
    assert 0 < reply.wait_seconds <= 1
    await make_call(bench, other, 1)
    await bench.advance(reply.wait_seconds)
    await make_call(bench, mine, 3)


async def test_a_handlers_calls_in_flight_are_its_jobs(bench: StoreBench) -> None:
    """A job that runs has its place: its further calls do not wait for it."""
    await bench.configure(queue={"handlers": True})
    await limited(bench, max_in_flight=1)
    await bench.enqueue(2, tenant="a", handler="h")
    grant = await bench.take()
    for number in (1, 2, 3):
        await make_call(bench, grant, number)
    assert (await bench.claim(1)).grants == ()
