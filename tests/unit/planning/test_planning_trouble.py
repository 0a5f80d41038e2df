from dataclasses import replace

import pytest

from llmqueue_operator.planning import BoundBy, Memory, PodPhase, plan, seed
from unit.planning.builders import (
    QUEUE,
    beat,
    condition,
    crew,
    group,
    pause,
    plan_one,
    pod,
    queue_input,
    remembering,
    seen,
    settle,
    spec,
    store,
)

BACKLOG = seen(ready=500)


def down(scaling=None, replicas=5, **facts):
    """A group whose store does not answer."""
    queue = queue_input(scaling, replicas=replicas)
    return group(queue, None, store_error="Connection refused", **facts)


def steady(scaling=None, *, busy=5, queue=BACKLOG, credential="", **facts):
    """A group with `busy` workers and a big backlog."""
    pods, workers = crew(busy=busy)
    return group(
        queue_input(scaling, pods, credential=credential), store([queue], workers, **facts)
    )


# ---------------------------------------------------------------- the store


@pytest.mark.parametrize(
    "error", ["Connection refused", "WRONGPASS", "WRONGTYPE", "timed out", "unknown command"]
)
def test_every_failure_of_the_store_has_one_outcome(error):
    """S38: a wrong Redis or key is a condition, not a silent 0."""
    made, _ = plan_one(replace(down(), store_error=error, store_age_seconds=42.0))
    assert (made.target, made.replicas, made.bound_by) == (5, 5, BoundBy.HELD)
    assert (made.mark, made.unmark, made.remove) == ((), (), ())
    said = condition(made, "StoreAvailable")
    assert (said.status, said.reason) == (False, "StoreUnavailable")
    assert error in said.message
    assert "42 s" in said.message


def test_a_queue_the_store_does_not_know_is_held():
    """S38: wrong database: other queues are there, ours is not."""
    other = store([seen("default/other", ready=5)])
    made = plan(group(queue_input(replicas=4), other), remembering(4), 0.0)
    assert (made.queues[0].target, made.queues[0].reason) == (4, "StoreUnconfigured")
    assert made.reconfigure


def test_ten_minutes_of_outage_and_back_in_one_tick():
    memory = remembering(5)
    for now in range(600):
        made, memory = plan_one(down(store_age_seconds=float(now)), memory, float(now))
        assert (made.target, made.replicas) == (5, 5)
    pods, workers = crew(busy=5)
    back = group(queue_input(pods=pods), store([BACKLOG], workers))
    made, memory = plan_one(back, memory, 600.0)
    assert made.target == 11
    assert condition(made, "StoreAvailable").status


def test_on_outage_at_least_raises_once():
    """S16: 0 workers, Redis down, onOutage AtLeast 1: 1, once."""
    scaling = spec(on_outage="AtLeast", on_outage_replicas=1)
    memory = remembering(0)
    targets = []
    for now in range(3):
        made, memory = plan_one(down(scaling, replicas=min(now, 1)), memory, float(now))
        targets.append((made.target, made.replicas))
    assert targets == [(1, 1)] * 3
    five = plan_one(down(scaling, replicas=5), remembering(5))[0]
    assert five.target == 5


def test_on_outage_rises_only_at_its_beginning():
    scaling = spec(on_outage="AtLeast", on_outage_replicas=3)
    memory = replace(remembering(0), outage_raised=True)
    assert plan_one(down(scaling, replicas=0), memory)[0].target == 0


def test_a_second_outage_raises_again_and_a_raise_lasts_a_window():
    """S16: once in each outage; what was raised goes down by the window only."""
    scaling = spec(on_outage="AtLeast", on_outage_replicas=3, stabilization_seconds=60.0)
    pods, workers = crew(idle=3)
    back = group(queue_input(scaling, pods), store([seen()], workers))
    memory = plan_one(down(scaling, replicas=0), remembering(0), 0.0)[1]
    held, memory = plan_one(back, memory, 59.0)
    lowered, memory = plan_one(back, memory, 60.0)
    assert (held.target, lowered.target) == (3, 1)
    again, _ = plan_one(down(scaling, replicas=1), memory, 61.0)
    assert again.target == 3


def test_after_an_outage_late_heartbeats_prove_nothing():
    """S13: workers are neither missed nor removed before they can have sent a heartbeat."""
    pods = [pod(f"w{i}") for i in range(5)]
    late = [beat(f"w{i}", age=120) for i in range(5)]
    back = group(queue_input(spec(max_replicas=2), pods), store([seen()], late))
    _, memory = plan_one(down(), remembering(5), 0.0)
    made, memory = plan_one(back, memory, 1.0)
    assert made.remove == ()
    assert condition(made, "WorkersAvailable").status
    made, _ = plan_one(back, memory, 12.0)
    assert not condition(made, "WorkersAvailable").status


def test_a_person_may_still_add_workers_in_an_outage():
    made, _ = plan_one(down(spec(replicas_override=8)))
    assert (made.target, made.replicas) == (8, 8)
    fewer, _ = plan_one(down(spec(replicas_override=2)))
    assert (fewer.target, fewer.replicas, fewer.remove) == (2, 5, ())


@pytest.mark.parametrize("epoch", [None, "e2"])
def test_a_store_that_was_reset_holds_one_window(epoch):
    empty = store([seen()], epoch=epoch)
    snapshot = group(queue_input(replicas=6), empty)
    made = plan(snapshot, remembering(6), 0.0)
    assert made.reconfigure
    assert (made.queues[0].target, made.queues[0].reason) == (6, "StoreReset")
    anew = group(queue_input(replicas=6), store([BACKLOG], epoch="e2"))
    later = plan(anew, made.memory, 59.0)
    assert later.queues[0].target == 6
    after = plan(anew, later.memory, 60.0)
    assert (after.queues[0].target, after.reconfigure) == (11, False)


def test_the_first_start_has_nothing_to_hold():
    """S29: a store without configuration is configured at once, and then planned on."""
    first = plan(group(queue_input(), store([seen()], epoch=None)), Memory(), 0.0)
    assert first.reconfigure
    assert first.queues[0].reason == "StoreUnconfigured"
    second = plan(group(queue_input(), store([BACKLOG])), first.memory, 0.5)
    assert second.queues[0].target == 11


def test_a_seeded_epoch_tells_a_reset_over_a_restart():
    memory = seed([queue_input(replicas=6)], {}, epoch="before", now=0.0)
    made = plan(group(queue_input(replicas=6), store([seen()])), memory, 0.0)
    assert made.queues[0].reason == "StoreReset"


# ---------------------------------------------------------------- the provider


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        pytest.param({"blocked_seconds": 2.0}, "RateLimited", id="429 with a short wait"),
        pytest.param(
            {"rate_factor": 0.4, "answers": 50, "answers_rate": 1}, "RateLimited", id="ramp"
        ),
        pytest.param(
            {"rate_factor": 0.5, "answers": 100, "answers_rate": 60}, "RateLimited", id="S42 storm"
        ),
        pytest.param({"answers": 10, "answers_rate": 6}, "RateLimited", id="most answers are 429"),
        pytest.param({"breaker": "open", "breaker_seconds": 90.0}, "BreakerOpen", id="open"),
        pytest.param({"breaker": "half-open"}, "BreakerOpen", id="half-open"),
        pytest.param({"answers": 10, "answers_unknown": 3}, "UnknownOutcomes", id="unknown"),
    ],
)
def test_no_growth_while_the_provider_is_in_trouble(facts, reason):
    made, _ = plan_one(steady(**facts))
    assert (made.target, made.replicas, made.reason) == (5, 5, reason)
    assert made.bound_by is BoundBy.HELD
    assert made.wish == 11
    assert condition(made, "ProviderAvailable").reason == reason


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param({"answers": 10, "answers_unknown": 2}, id="20 % unknown is not more"),
        pytest.param({"answers": 4, "answers_unknown": 4}, id="too few answers to judge"),
        pytest.param({"rate_factor": 0.1}, id="S29 ramp of an idle budget"),
        pytest.param({"answers": 100, "answers_rate": 1}, id="one 429 a while ago"),
    ],
)
def test_growth_goes_on(facts):
    made, _ = plan_one(steady(**facts))
    assert made.target == 11
    assert condition(made, "ProviderAvailable").status


def test_a_storm_of_429s_lowers_the_effective_rate_and_adds_nobody():
    """S42: 60 % 429: no growth; the effective rate falls."""
    storm = steady(rate_factor=0.5, answers=100, answers_rate=60)
    made, _ = settle(storm, remembering(5), start=1000.0, seconds=200)
    assert made.target == 5
    assert made.effective_rpm == pytest.approx(0.5 * 60 * 60 / 61)
    assert plan_one(steady())[0].effective_rpm == pytest.approx(60 * 60 / 61)


def test_failures_for_other_reasons_change_nothing():
    """S47: bad requests, dead letters: capacity unchanged."""
    assert plan_one(steady(answers=100))[0] == plan_one(steady())[0]


def test_from_zero_one_worker_may_always_start():
    """Without it no probe would close the breaker."""
    made, _ = plan_one(steady(busy=0, breaker="half-open"))
    assert (made.target, made.replicas) == (1, 1)


def test_no_growth_does_not_break_the_minimum():
    made, _ = plan_one(steady(spec(min_replicas=8), breaker="open"))
    assert made.target == 8


def test_a_long_block_gives_the_workers_back_and_has_them_again_in_time():
    """S44: 429 with Retry-After 300: to min, and asked for at blocked_until - pod start."""
    memory = remembering(11)
    targets = {}
    for left in range(300, -1, -1):
        snapshot = steady(
            spec(min_replicas=2, pod_start_seconds=20.0), busy=11, blocked_seconds=float(left)
        )
        made, memory = plan_one(snapshot, memory, 1000.0 - left)
        targets[left] = made.target
    assert targets[241] == 11
    assert targets[240] == 2
    assert targets[21] == 2
    assert targets[20] == 11
    assert targets[0] == 11


def test_a_long_block_says_until_when():
    """S44: whole budget paused."""
    made, _ = plan_one(steady(blocked_seconds=300.0))
    assert (made.reason, made.bound_by) == ("RateLimited", BoundBy.HELD)
    assert made.next_change_seconds == 290.0
    assert made.eta_seconds > 300


def test_a_short_block_keeps_the_workers():
    """S44: a wait shorter than window and pod start is waited out."""
    made, _ = settle(steady(blocked_seconds=60.0), remembering(5), start=0.0, seconds=100)
    assert made.target == 5


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("QUOTA", "QuotaExhausted"),
        ("AUTH", "CredentialRejected"),
        ("FORBIDDEN", "CredentialForbidden"),
    ],
)
def test_a_refused_credential_has_its_own_condition(kind, reason):
    """S45: own condition; to min; the provider itself is not blamed."""
    snapshot = steady(spec(min_replicas=2), pauses=[pause(kind)])
    made, _ = settle(snapshot, remembering(5), start=0.0, seconds=100)
    assert (made.target, made.reason, made.bound_by) == (2, reason, BoundBy.HELD)
    assert condition(made, "CredentialUsable").reason == reason
    assert condition(made, "ProviderAvailable").status
    assert made.eta_seconds is None
    assert made.next_change_seconds == 190.0


@pytest.mark.parametrize(
    ("next_probe", "probing", "jobs", "target"),
    [
        pytest.param(200.0, False, 500, 0, id="not yet"),
        pytest.param(10.0, False, 500, 1, id="in time for the probe, from 0"),
        pytest.param(0.0, False, 500, 1, id="resume: now"),
        pytest.param(300.0, True, 500, 1, id="while it probes"),
        pytest.param(0.0, False, 0, 0, id="no job to probe with"),
    ],
)
def test_one_probe_worker(next_probe, probing, jobs, target):
    """S45: one worker at reset time, also from 0."""
    snapshot = steady(
        busy=0, queue=seen(ready=jobs), pauses=[pause(next_probe=next_probe, probing=probing)]
    )
    assert plan_one(snapshot)[0].target == target


def test_a_paused_queue_ends_at_zero_between_probes():
    """S45: probes do not keep a worker for ever."""
    memory = remembering(5)
    targets = []
    for now in range(1000):
        snapshot = steady(busy=5, pauses=[pause(next_probe=float(300 - now % 300))])
        made, memory = plan_one(snapshot, memory, float(now))
        targets.append(made.target)
    assert targets[59] == 5
    assert targets[61] == 1
    assert targets[500] == 0
    assert targets[590] == 1


def test_a_pause_of_another_credential_does_not_concern_us():
    made, _ = plan_one(steady(pauses=[pause(key="theirs")], credential="ours"))
    assert made.target == 11
    ours, _ = plan_one(steady(pauses=[pause(key="ours")], credential="ours"))
    assert ours.target == 5


# ---------------------------------------------------------------- the workers


@pytest.mark.parametrize(
    ("extra", "reason"),
    [
        pytest.param(pod("x", PodPhase.FAILED), "WorkersFailing", id="crash-looping"),
        pytest.param(pod("x", age=31), "WorkersNotSeen", id="ready, not in the store"),
    ],
)
def test_workers_in_trouble_count_as_coming_and_stop_growth(extra, reason):
    pods, workers = crew(busy=5)
    snapshot = group(queue_input(pods=[*pods, extra]), store([BACKLOG], workers))
    made, _ = plan_one(snapshot)
    assert (made.target, made.replicas, made.reason) == (6, 6, reason)
    assert condition(made, "WorkersAvailable").message.endswith("pod-x")


def test_many_failing_workers_are_named_in_short():
    pods = [pod(f"x{i}", PodPhase.FAILED) for i in range(9)]
    made, _ = plan_one(group(queue_input(pods=pods), store([BACKLOG])))
    assert condition(made, "WorkersAvailable").message.endswith("pod-x0, pod-x1, pod-x2 and 6 more")


def test_trouble_does_not_stop_the_way_down():
    pods, workers = crew(busy=2, idle=3)
    snapshot = group(
        queue_input(pods=pods), store([seen(sent=2)], workers, breaker="open", breaker_seconds=9.0)
    )
    made, _ = settle(snapshot, remembering(5), start=0.0, seconds=100)
    assert (made.target, made.reason) == (2, "Steady")


def test_queues_of_a_group_are_held_together():
    queues = [queue_input(queue=f"default/{i}", replicas=i) for i in (1, 2)]
    made = plan(group(queues, None), Memory(), 0.0)
    assert [q.replicas for q in made.queues] == [1, 2]
    assert {q.queue for q in made.queues} == {"default/1", "default/2"} == set(made.memory.queues)
    assert QUEUE not in made.memory.queues
