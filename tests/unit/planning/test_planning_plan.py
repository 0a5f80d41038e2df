"""One queue's plan in the situations that people reported."""

from dataclasses import replace

import pytest

from llmqueue_operator.planning import (
    BoundBy,
    Memory,
    PodPhase,
    Remembered,
    plan,
    seed,
    store_plan_fields,
)
from unit.planning.builders import (
    QUEUE,
    beat,
    condition,
    crew,
    group,
    plan_one,
    pod,
    queue_input,
    remembering,
    rpm,
    seen,
    settle,
    spec,
    store,
)


def test_in_flight_is_work():
    """S2: depth always reads 0, 5 in flight: stays 5; never 0 while in flight."""
    pods, workers = crew(busy=5)
    snapshot = group(queue_input(pods=pods), store([seen(sent=5)], workers))
    made, _ = settle(snapshot, remembering(5), start=0.0, seconds=1000)
    assert (made.wish, made.target, made.remove) == (5, 5, ())


def test_nobody_goes_on_an_old_look():
    """S4: without a fresh read of the store nobody is removed, marked idle or not."""
    pods, workers = crew(idle=5, drain=20)
    fresh = group(queue_input(spec(max_replicas=1), pods), store([seen()], workers))
    assert len(plan_one(fresh)[0].remove) == 4
    stale = replace(fresh, store=None, store_age_seconds=5.0)
    assert plan_one(stale)[0].remove == ()


def test_dead_heartbeats_hold_no_worker():
    """S18: heartbeats without pods: new pods are asked for."""
    ghosts = [beat(f"g{i}", in_flight=1) for i in range(5)]
    made, _ = plan_one(group(queue_input(replicas=0), store([seen(ready=5)], ghosts)))
    assert (made.actual, made.target, made.replicas) == (0, 5, 5)


def test_calls_of_ending_workers_count_against_the_budget():
    """S26: 9 of 10 draining: capacity 1; their calls still count against the budget."""
    pods = [pod("stays")] + [pod(f"d{i}", PodPhase.TERMINATING) for i in range(9)]
    workers = [beat("stays", in_flight=1)] + [beat(f"d{i}", in_flight=1) for i in range(9)]
    snapshot = group(queue_input(pods=pods, replicas=1), store([seen(ready=99, sent=10)], workers))
    made, _ = plan_one(snapshot, remembering(1))
    assert (made.actual, made.wish, made.target) == (1, 2, 2)
    assert made.bound_by is BoundBy.REQUESTS_PER_MINUTE


def test_draining_workers_do_not_make_others_drain():
    """S26: long calls drain for longer than the window; the target stays."""
    pods, workers = crew(busy=11)
    workers = [replace(w, drain_seconds=29.0) if i < 3 else w for i, w in enumerate(workers)]
    state = store([seen(ready=500, sent=11, grants=400, busy_ms=8 * 290_000)], workers)
    memory = remembering(8, last_up=0.0, slot_seconds=5.4, next_grants=400)
    made, _ = settle(group(queue_input(pods=pods), state), memory, start=100.0, seconds=300)
    assert made.target >= 8


def test_a_burst_is_answered_in_the_first_tick():
    """S29: 0 to 300 jobs: the whole wish in one plan."""
    snapshot = group(queue_input(), store([seen(ready=300)]), limits=[rpm(6000)])
    made, _ = plan_one(snapshot, remembering(0))
    assert (made.target, made.replicas, made.bound_by) == (100, 100, BoundBy.MAX_REPLICAS)


def test_ten_to_eleven():
    """S30: demand 10 to 11: 11."""
    pods, workers = crew(busy=10)
    snapshot = group(
        queue_input(pods=pods), store([seen(ready=1, sent=10)], workers), limits=[rpm(6000)]
    )
    made, _ = plan_one(snapshot)
    assert (made.target, made.bound_by) == (11, BoundBy.BACKLOG)


@pytest.mark.parametrize(
    ("sent", "ready", "workers_"),
    [
        pytest.param(1, 1, 2, id="S37: 1 long job running, 1 queued"),
        pytest.param(0, 1, 1, id="S39: 1 job, max 100"),
        pytest.param(0, 0, 0, id="none"),
    ],
)
def test_few_jobs(sent, ready, workers_):
    """S37, S39: exactly as many workers as jobs, at once."""
    pods, workers = crew(busy=sent)
    made, _ = plan_one(
        group(queue_input(pods=pods), store([seen(ready=ready, sent=sent)], workers))
    )
    assert made.target == workers_


def test_jobs_due_before_a_pod_is_ready_are_demand():
    made, _ = plan_one(group(queue_input(), store([seen(delayed=50, due=4)])))
    assert made.target == 4


def test_the_budget_binds_not_the_backlog():
    """S41: RPM 60, 8 s, one slot, 10,000 jobs: 11, RequestsPerMinute, ETA."""
    made, _ = plan_one(group(queue_input(), store([seen(ready=10_000)])), remembering(0))
    assert (made.target, made.bound_by) == (11, BoundBy.REQUESTS_PER_MINUTE)
    assert made.eta_seconds == pytest.approx(10_000 * 61 / 60)
    assert made.effective_rpm == pytest.approx(3600 / 61)


def test_max_in_flight_binds():
    made, _ = plan_one(
        group(queue_input(), store([seen(ready=99)]), limits=[rpm(6000)], max_in_flight=7)
    )
    assert (made.target, made.bound_by) == (7, BoundBy.IN_FLIGHT)


def test_a_target_wait_asks_for_fewer():
    scaling = spec(target_queue_wait_seconds=100.0)
    made, _ = plan_one(group(queue_input(scaling), store([seen(ready=100)]), limits=[rpm(6000)]))
    assert (made.target, made.bound_by) == (8, BoundBy.BACKLOG)


def test_target_utilization_lowers_the_rate():
    scaling = spec(target_utilization_percent=50)
    made, _ = plan_one(group(queue_input(scaling), store([seen(ready=999)])))
    assert made.effective_rpm == pytest.approx(1800 / 61)
    assert made.target == 6


def test_a_suspended_queue_wants_nobody_but_lets_calls_finish():
    pods, workers = crew(busy=2)
    running = group(
        queue_input(pods=pods), store([seen(ready=50, sent=2, suspended=True)], workers)
    )
    made, _ = plan_one(running)
    assert (made.wish, made.eta_seconds) == (2, None)
    idle, _ = plan_one(group(queue_input(), store([seen(ready=50, suspended=True)])))
    assert (idle.target, idle.reason, idle.eta_seconds) == (0, "Suspended", None)


def test_scaling_paused_freezes_replicas_and_lifts_marks():
    pods, workers = crew(busy=2, idle=2, drain=20)
    snapshot = group(queue_input(spec(paused=True), pods), store([seen(ready=99)], workers))
    made, _ = plan_one(snapshot, remembering(2))
    assert (made.target, made.replicas, made.remove, made.mark) == (4, 4, (), ())
    assert len(made.unmark) == 4
    assert (made.reason, made.bound_by) == ("ScalingPaused", BoundBy.HELD)
    assert not condition(made, "ScalingActive").status


def test_paused_comes_before_override_and_outage():
    scaling = spec(paused=True, replicas_override=9, on_outage="AtLeast", on_outage_replicas=7)
    made, _ = plan_one(group(queue_input(scaling, replicas=3), store([seen()])))
    assert made.replicas == 3
    held, _ = plan_one(group(queue_input(scaling, replicas=3), None))
    assert (held.target, held.replicas) == (3, 3)


@pytest.mark.parametrize(
    ("override", "low", "high", "target"),
    [
        pytest.param(7, 0, 20, 7, id="above the wish"),
        pytest.param(1, 3, 20, 1, id="below min"),
        pytest.param(50, 0, 20, 20, id="never above max"),
        pytest.param(0, 1, 20, 0, id="zero"),
    ],
)
def test_override(override, low, high, target):
    pods, workers = crew(busy=3)
    scaling = spec(replicas_override=override, min_replicas=low, max_replicas=high)
    made, _ = plan_one(group(queue_input(scaling, pods), store([seen(sent=3)], workers)))
    assert (made.target, made.bound_by, made.reason) == (
        target, BoundBy.OVERRIDE, "ReplicasOverride",
    )  # fmt: skip
    assert made.replicas == max(3, target)  # drains normally
    assert made.remove == ()


def test_an_override_that_ends_leads_back_by_the_window():
    pods, workers = crew(idle=9)
    snapshot = group(queue_input(spec(replicas_override=9), pods), store([seen()], workers))
    _, memory = settle(snapshot, remembering(0), start=100.0, seconds=10)
    free = group(queue_input(spec(), pods), store([seen()], workers))
    held, memory = settle(free, memory, start=111.0, seconds=48)
    assert (held.target, held.reason, held.next_change_seconds) == (9, "StabilizationWindow", 1.0)
    assert plan_one(free, memory, 160.0)[0].target == 1


def test_a_lower_max_counts_at_once():
    pods, workers = crew(busy=9)
    scaling = spec(max_replicas=4)
    made, _ = plan_one(group(queue_input(scaling, pods), store([seen(ready=99, sent=9)], workers)))
    assert (made.target, made.replicas, made.bound_by) == (4, 9, BoundBy.MAX_REPLICAS)


def test_a_rollout_is_named_where_it_keeps_workers():
    pods, workers = crew(idle=4)
    queue = queue_input(spec(max_replicas=2), pods, rolling=True)
    made, _ = plan_one(group(queue, store([seen()], workers)))
    assert (made.target, made.replicas, made.reason) == (2, 4, "RolloutInProgress")


def test_starting_pods_count():
    """S31: pod start 60 s, burst 500: no dip and no second helping while they start."""
    pods, _ = crew(pending=11)
    snapshot = group(queue_input(pods=pods), store([seen(ready=500)]))
    made, _ = settle(snapshot, remembering(11), start=0.0, seconds=180)
    assert (made.target, made.replicas, made.remove) == (11, 11, ())


def test_a_restart_at_thirty_busy_changes_nothing():
    """S34: operator killed 20 times at 30 busy: no change."""
    pods, workers = crew(busy=30)
    state = store([seen(ready=900, sent=30, grants=5000, busy_ms=5000 * 12_500)], workers)
    snapshot = group(queue_input(pods=pods), state, limits=[rpm(120)])
    made, memory = settle(snapshot, remembering(30, last_up=0.0), start=1000.0, seconds=200)
    before = made
    assert (before.target, before.bound_by) == (30, BoundBy.REQUESTS_PER_MINUTE)
    for life in range(20):
        kept = Remembered(desired=made.target, slot_seconds=made.slot_seconds)
        memory = seed(snapshot.queues, {QUEUE: kept}, epoch="e1", now=0.0)
        made, memory = settle(snapshot, memory, start=float(life), seconds=7)
        assert (made.target, made.replicas, made.mark) == (before.target, before.replicas, ())


def test_a_restart_without_a_status_keeps_what_the_runner_asks_for():
    """S34: unknown queues are seeded from the Deployment."""
    pods, workers = crew(idle=12)
    snapshot = group(queue_input(pods=pods), store([seen()], workers))
    made, memory = plan_one(snapshot, Memory(), 0.0)
    assert (made.target, made.mark, made.remove) == (12, (), ())
    made, _ = plan_one(snapshot, memory, 59.0)
    assert made.target == 12


def test_a_restart_in_the_middle_of_a_drain_goes_on_with_it():
    """S34: status 3, Deployment still 10."""
    pods, workers = crew(busy=10)
    workers = [replace(w, drain_seconds=20.0) if i < 7 else w for i, w in enumerate(workers)]
    snapshot = group(queue_input(pods=pods), store([seen(sent=10)], workers))
    memory = seed(snapshot.queues, {QUEUE: Remembered(desired=3)}, epoch=None, now=0.0)
    made, _ = plan_one(snapshot, memory, 1.0)
    assert (made.target, made.replicas, made.unmark) == (3, 10, ())


@pytest.mark.parametrize(
    ("state", "target", "eta"),
    [
        pytest.param(seen(), 0, 0.0, id="nothing to do"),
        pytest.param(seen(sent=1), 1, 8.0, id="one call runs"),
        pytest.param(seen(ready=1), 1, 8.0, id="one call to come"),
        pytest.param(seen(ready=4, sent=0), 4, 8.0, id="all at once"),
    ],
)
def test_eta(state, target, eta):
    made, _ = plan_one(group(queue_input(), store([state])))
    assert (made.target, made.eta_seconds) == (target, eta)


def test_a_lowered_rate_makes_the_eta_later():
    state = store([seen(ready=600)], rate_factor=0.5)
    made, _ = plan_one(group(queue_input(), state))
    assert made.eta_seconds == pytest.approx(1220)


def test_no_eta_without_a_worker():
    made, _ = plan_one(group(queue_input(spec(max_replicas=0)), store([seen(ready=5)])))
    assert made.eta_seconds is None


def test_an_open_breaker_is_part_of_the_eta():
    open_ = store([seen(ready=1)], breaker="open", breaker_seconds=90.0)
    made, _ = plan_one(group(queue_input(), open_))
    assert made.eta_seconds == 98.0


def test_fields_for_the_store():
    made, _ = plan_one(group(queue_input(), store([seen(ready=10_000)])), remembering(0))
    fields = store_plan_fields(made)
    assert fields["desired"] == fields["wish"] == fields["replicas"] == 11
    assert (fields["actual"], fields["draining"]) == (0, 0)
    assert (fields["bound_by"], fields["reason"]) == ("RequestsPerMinute", "ScaledUp")
    assert (fields["effective_rpm"], fields["eta_seconds"]) == (59.016, 10166.7)
    assert fields["next_change_seconds"] == ""
    assert fields["slot_seconds"] == 8.0
    assert all(type(value) in (str, int, float) for value in fields.values())


def test_every_plan_gives_all_conditions():
    made, _ = plan_one(group(queue_input(), store([seen()])))
    assert [c.type for c in made.conditions] == [
        "StoreAvailable", "ProviderAvailable", "CredentialUsable", "WorkersAvailable",
        "ScalingActive",
    ]  # fmt: skip
    assert all(c.status and c.reason == "AsExpected" for c in made.conditions)


def test_deleted_queues_leave_the_memory():
    memory = Memory(epoch="e1", queues={"default/gone": remembering(3).queues[QUEUE]})
    made = plan(group(queue_input(), store([seen()])), memory, 0.0)
    assert set(made.memory.queues) == {QUEUE}
