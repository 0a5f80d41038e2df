"""The invariants of the plan, for any snapshot."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from llmqueue.config import Limit
from llmqueue.states import LimitUnit
from llmqueue_operator.planning import Memory, PodPhase, QueueMemory, plan
from unit.planning.builders import (
    QUEUE,
    beat,
    group,
    pause,
    plan_one,
    pod,
    queue_input,
    seen,
    settle,
    spec,
    store,
)

slots_ = st.sampled_from((1, 2, 8))


@st.composite
def scalings(draw):
    low = draw(st.integers(0, 10))
    return spec(
        min_replicas=low,
        max_replicas=draw(st.integers(low, 60)),
        slots_per_worker=draw(slots_),
        idle_seconds=draw(st.sampled_from((5.0, 300.0))),
        target_queue_wait_seconds=draw(st.sampled_from((None, 5.0, 100.0))),
        target_utilization_percent=draw(st.integers(10, 100)),
    )


@st.composite
def members(draw):
    """Pods with their heartbeats, and heartbeats of nobody."""
    pods, workers = [], []
    for i in range(draw(st.integers(0, 12))):
        phase = draw(st.sampled_from(PodPhase))
        pods.append(pod(f"w{i}", phase, age=draw(st.sampled_from((1.0, 50.0)))))
        if draw(st.booleans()):
            workers.append(
                beat(
                    f"w{i}",
                    in_flight=draw(st.integers(0, 3)),
                    remaining=draw(st.floats(0, 100)),
                    age=draw(st.sampled_from((0.5, 9.0, 15.0, 60.0))),
                    drain=draw(st.sampled_from((0.0, 0.0, 2.0, 29.0))),
                )
            )
    if draw(st.booleans()):
        workers.append(beat("ghost", in_flight=1))
    return pods, workers


@st.composite
def states(draw):
    grants = draw(st.integers(0, 2000))
    mean_ms = draw(st.integers(10, 60_000))
    tokens = draw(st.integers(0, 5000))
    return seen(
        ready=draw(st.sampled_from((0, 1, 7, 300, 100_000))),
        sent=draw(st.integers(0, 40)),
        due=draw(st.integers(0, 5)),
        grants=grants,
        busy_ms=grants * mean_ms,
        suspended=draw(st.integers(0, 9)) == 0,
        charged={"requests": grants, "tokens": grants * tokens},
    )


troubles = st.sampled_from(
    (
        {},
        {},
        {"blocked_seconds": 5.0},
        {"blocked_seconds": 500.0},
        {"rate_factor": 0.5, "answers": 10, "answers_rate": 6},
        {"breaker": "open", "breaker_seconds": 30.0},
        {"answers": 10, "answers_unknown": 5},
        {"pauses": (pause(next_probe=2.0),)},
        {"pauses": (pause(next_probe=200.0),)},
    )
)


@st.composite
def limit_sets(draw):
    return (
        Limit(LimitUnit.REQUESTS, draw(st.integers(1, 2000)), 60),
        Limit(LimitUnit.TOKENS, draw(st.integers(1000, 500_000)), 60),
    )


@st.composite
def situations(draw, trouble=troubles):
    pods, workers = draw(members())
    queue = queue_input(draw(scalings()), pods, rolling=draw(st.integers(0, 5)) == 0)
    most = draw(st.sampled_from((None, 1, 10, 100)))
    state = store([draw(states())], workers, **draw(trouble))
    memory = Memory(
        epoch="e1",
        queues={
            QUEUE: QueueMemory(
                target=draw(st.integers(0, 12)),
                wishes=((990.0, draw(st.integers(0, 12))),),
                last_up=draw(st.sampled_from((None, 10.0, 980.0))),
            )
        },
    )
    return group(queue, state, limits=draw(limit_sets()), max_in_flight=most), memory


def busy(snapshot, uid):
    return any(w.worker == f"{uid}:1" and w.in_flight for w in snapshot.store.workers)


@given(situations())
def test_the_wish_lies_between_min_and_max(situation):
    made, _ = plan_one(*situation)
    scaling = situation[0].queues[0].scaling
    assert scaling.min_replicas <= made.wish <= scaling.max_replicas
    assert made.target <= scaling.max_replicas
    assert made.replicas >= made.target >= 0


@given(situations())
def test_the_wish_is_within_the_cap_unless_min_asks_for_more(situation):
    snapshot, memory = situation
    made, _ = plan_one(snapshot, memory)
    scaling = snapshot.queues[0].scaling
    rates = [snapshot.limits[0].limit / 61 * scaling.target_utilization_percent / 100]
    in_flight = rates[0] * made.slot_seconds
    cap = (in_flight + in_flight**0.5) / scaling.slots_per_worker + 1
    if snapshot.max_in_flight is not None:
        cap = min(cap, snapshot.max_in_flight / scaling.slots_per_worker + 1)
    assert made.wish <= max(cap, scaling.min_replicas, 1)


@given(situations(), st.integers(1, 1000), st.integers(1, 50))
def test_more_budget_never_means_fewer(situation, more_limit, more_in_flight):
    snapshot, memory = situation
    most = snapshot.max_in_flight
    richer = replace(
        snapshot,
        limits=tuple(replace(limit, limit=limit.limit + more_limit) for limit in snapshot.limits),
        max_in_flight=None if most is None else most + more_in_flight,
    )
    poor, rich = plan_one(snapshot, memory)[0], plan_one(richer, memory)[0]
    assert rich.wish >= poor.wish
    assert rich.target >= poor.target


@given(situations())
def test_same_in_same_out(situation):
    assert plan(*situation, 1000.0) == plan(*situation, 1000.0)


@given(situations())
def test_each_plan_carries_a_reason(situation):
    made, memory = plan_one(*situation)
    assert made.reason
    assert made.message
    assert made.bound_by
    assert memory.queues[QUEUE].target_reason == made.reason
    assert all(c.message for c in made.conditions if not c.status)


@given(situations())
def test_no_busy_victim_while_an_idle_one_exists(situation):
    snapshot, memory = situation
    made, _ = plan_one(snapshot, memory)
    assert not any(busy(snapshot, uid) for uid in made.remove)
    victims = {worker.partition(":")[0] for worker in made.mark} | set(made.remove)
    if any(busy(snapshot, uid) for uid in victims):
        fresh = {
            w.worker.partition(":")[0]
            for w in snapshot.store.workers
            if w.in_flight == 0 and w.age_seconds <= 10
        }
        here = {p.uid for p in snapshot.queues[0].pods if p.phase is not PodPhase.TERMINATING}
        assert not (fresh & here) - victims


@given(situations())
def test_only_pods_that_may_go_are_removed(situation):
    snapshot, memory = situation
    made, _ = plan_one(snapshot, memory)
    views = {p.uid: p for p in snapshot.queues[0].pods}
    beats = {w.worker.partition(":")[0]: w for w in snapshot.store.workers}
    for uid in made.remove:
        beat_ = beats.get(uid)
        marked_and_idle = beat_ is not None and beat_.drain_seconds > 0 and beat_.in_flight == 0
        lost = beat_ is None or beat_.age_seconds > 30
        coming = views[uid].phase in (PodPhase.PENDING, PodPhase.FAILED) or lost
        assert coming or marked_and_idle
    assert len(set(made.remove)) == len(made.remove)
    assert not set(made.mark) & set(made.unmark)


def achieved(snapshot, made):
    """The same facts after the plan was carried out: the removed are gone, missing pods are
    started and seen, marks are set."""
    queue = snapshot.queues[0]
    pods = [p for p in queue.pods if p.uid not in made.remove]
    workers = [
        replace(
            w,
            drain_seconds=30.0 if w.worker in made.mark
            else 0.0 if w.worker in made.unmark else w.drain_seconds,
        )
        for w in snapshot.store.workers
        if w.worker.partition(":")[0] not in made.remove
    ]  # fmt: skip
    here = sum(p.phase is not PodPhase.TERMINATING for p in pods)
    pods += [pod(f"new{i}", PodPhase.PENDING, age=1.0) for i in range(made.replicas - here)]
    return replace(
        snapshot,
        queues=(replace(queue, pods=tuple(pods), replicas=made.replicas),),
        store=replace(snapshot.store, workers=tuple(workers)),
    )


@settings(max_examples=60)
@given(situations())
def test_the_plan_of_the_achieved_state_is_empty(situation):
    snapshot, memory = situation
    now = 1000.0
    made = None
    for _ in range(80):
        made, memory = plan_one(snapshot, memory, now)
        snapshot = achieved(snapshot, made)
        now += 10.0
    again, _ = plan_one(snapshot, memory, now)
    assert (again.target, again.replicas, again.mark) == (made.target, made.replicas, made.mark)
    assert (again.unmark, again.remove) == ((), ())


@settings(max_examples=60)
@given(situations(trouble=st.just({})))
def test_constant_demand_changes_nothing_after_a_window(situation):
    snapshot, memory = situation
    # Long enough for the idle timer too; pods and heartbeats stand still, so no mark is obeyed.
    made, memory = settle(snapshot, memory, start=1000.0, seconds=440, tick=10)
    targets = set()
    for second in range(0, 130, 10):
        made, memory = plan_one(snapshot, memory, 1450.0 + second)
        targets.add(made.target)
    assert targets == {made.target}
    excess = made.target - made.wish
    draining = any(w.drain_seconds for w in snapshot.store.workers) or any(
        p.phase is PodPhase.TERMINATING for p in snapshot.queues[0].pods
    )
    failing = any(c.type == "WorkersAvailable" and not c.status for c in made.conditions)
    assert excess >= 0 or failing
    assert excess <= 2 or draining


@given(situations(trouble=st.just({})))
def test_up_is_never_delayed(situation):
    made, _ = plan_one(*situation)
    failing = any(c.type == "WorkersAvailable" and not c.status for c in made.conditions)
    assert made.target >= made.wish or failing


@given(situations())
def test_without_the_store_nothing_moves(situation):
    snapshot, memory = situation
    held = replace(snapshot, store=None)
    made, after = plan_one(held, memory)
    assert made.target == memory.queues[QUEUE].target
    assert made.replicas == max(made.target, held.queues[0].replicas)
    assert (made.mark, made.unmark, made.remove) == ((), (), ())
    assert after.queues[QUEUE].wishes == memory.queues[QUEUE].wishes
