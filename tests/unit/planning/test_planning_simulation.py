"""What the numbers of the planner are worth, on a virtual clock."""

import itertools
import math
import random
from dataclasses import replace

import pytest

from llmqueue_operator.planning import Remembered, seed
from unit.planning.builders import rpm, spec
from unit.planning.simulation import QUEUE, Simulation

FLOOR_SECONDS = 610.0


def lognormal(seed_: int, mean: float = 8.0, sigma: float = 0.5):
    source = random.Random(seed_)
    return lambda: source.lognormvariate(math.log(mean) - sigma**2 / 2, sigma)


def worst_window(starts, seconds=60.0):
    worst, first = 0, 0
    for i, start in enumerate(starts):
        while starts[first] <= start - seconds:
            first += 1
        worst = max(worst, i - first + 1)
    return worst


def worked_example(record):
    done = sorted(record.done)
    assert len(done) == 600
    assert done[587] <= 1.05 * FLOOR_SECONDS
    assert record.pod_seconds <= 1.65 * record.useful_seconds
    assert record.direction_changes <= 1
    assert record.removed_busy == 0
    assert worst_window(record.starts) <= 60


def test_the_worked_example():
    """60 RPM, 8 s calls, one slot, 600 jobs: 11 workers, floor 610 s, no 60 s window over."""
    record = Simulation(rpm(60), spec(), [(0, 600)], lambda: 8.0).run(2000, stop_when_done=True)
    worked_example(record)
    assert max(record.targets) == 11
    assert record.targets[0] == 11


@pytest.mark.parametrize("seed_", range(6))
def test_the_worked_example_on_lognormal_calls(seed_):
    record = Simulation(rpm(60), spec(), [(0, 600)], lognormal(seed_)).run(
        2000, stop_when_done=True
    )
    worked_example(record)
    assert 10 <= max(record.targets) <= 13


def test_a_steady_backlog_keeps_eleven():
    """S41: RPM 60, calls of exactly 8 s, 1 slot, 10,000 jobs: 11, steady."""
    record = Simulation(rpm(60), spec(), [(0, 10_000)], lambda: 8.0).run(3000)
    assert set(record.targets) == {11}
    assert {made.bound_by for _, made in record.plans} == {"RequestsPerMinute"}
    assert all(made.eta_seconds > 0 for _, made in record.plans)


def test_a_wrong_expectation_is_corrected_by_what_is_seen():
    """W0 is 60 s, calls take 8: from 67 workers to about 11, in few steps."""
    record = Simulation(rpm(60), spec(expected_call_seconds=60.0), [(0, 10_000)], lambda: 8.0).run(
        1500
    )
    assert record.targets[0] == 67
    assert 11 <= record.targets[-1] <= 13
    assert record.direction_changes == 0
    assert record.removed_busy == 0


def test_many_slots_at_a_high_rate():
    """600 RPM, 2 s calls, 8 slots: 3 to 4 workers use the budget."""
    scaling = spec(slots_per_worker=8, expected_call_seconds=2.0)
    record = Simulation(rpm(600), scaling, [(0, 100_000)], lambda: 2.0).run(300)
    assert set(record.targets) <= {3, 4}
    assert len(record.starts) >= 0.96 * 600 * 300 / 61.5


@pytest.mark.parametrize("seed_", range(3))
def test_random_arrivals_turn_the_target_down_once_a_window(seed_):
    """Random arrivals at half the budget, for 40 min: a rise is kept for a whole window."""
    source = random.Random(seed_)
    arrivals, now = [], 0.0
    while now < 2400:
        now += source.expovariate(0.5)
        arrivals.append((now, 1))
    record = Simulation(rpm(60), spec(), arrivals, lognormal(seed_)).run(2400)
    moves = [
        (now, made.target - before.target)
        for (_, before), (now, made) in zip(record.plans, record.plans[1:], strict=False)
    ]
    risen = -math.inf
    for now, move in moves:
        risen = now if move > 0 else risen
        assert move >= 0 or now - risen >= 60
    assert record.direction_changes <= 2 * 2400 / 60
    assert record.removed_busy == 0
    assert max(record.targets) <= 13


def test_constant_arrivals_keep_their_workers():
    """S2: arrivals 1 every 2 s, calls of 8 s: 4 to 5 workers, never fewer than run."""
    arrivals = [(2.0 * i, 1) for i in range(600)]
    record = Simulation(rpm(60), spec(), arrivals, lambda: 8.0).run(1000)
    assert set(record.targets[150:]) <= {4, 5}
    assert record.direction_changes <= 1


def test_restarts_change_nothing():
    """S34: the planner forgets everything every 30 s but what the status keeps."""

    def restart(memory, queue, now):
        if now == 0 or now % 30:
            return memory
        made = calm.record.plans[-1][1]
        kept = Remembered(desired=made.target, slot_seconds=made.slot_seconds)
        return seed([queue], {QUEUE: kept}, epoch="e", now=now)

    calm = Simulation(rpm(60), spec(), [(0, 10_000)], lognormal(1), restart=restart)
    forgetful = calm.run(900)
    steady = Simulation(rpm(60), spec(), [(0, 10_000)], lognormal(1)).run(900)
    assert forgetful.targets == steady.targets


def test_slow_pods():
    """S33: pods take 3 min to start: Pending go first, one change of direction a window."""
    arrivals = [(0, 100), (120, 1), (400, 200), (900, 50)]
    record = Simulation(
        rpm(600), spec(max_replicas=40), arrivals, lambda: 8.0, pod_start_seconds=180.0
    ).run(1500)
    turns = _turns(record)
    assert all(later - earlier >= 60 for earlier, later in itertools.pairwise(turns))
    assert len(record.done) == 351
    assert record.removed_busy == 0


def _turns(record):
    steps = [
        (now, made.target - before.target)
        for (_, before), (now, made) in zip(record.plans, record.plans[1:], strict=False)
        if made.target != before.target
    ]
    return [now for (_, last), (now, step) in itertools.pairwise(steps) if (last > 0) > (step > 0)]


def test_a_burst_onto_slow_pods_does_not_dip():
    """S31: pod start 60 s, burst 500: starting pods count; no dip at 60 s."""
    record = Simulation(
        rpm(6000), spec(max_replicas=50), [(0, 500)], lambda: 20.0, pod_start_seconds=60.0
    ).run(200)
    assert set(record.targets[:180]) == {50}


def test_idle_to_zero():
    """S27: after the work the workers go to 1, later to 0, and come back at once."""
    record = Simulation(rpm(600), spec(), [(0, 20), (700, 5)], lambda: 8.0).run(720)
    changes = [
        (round(now), made.target)
        for (_, before), (now, made) in zip(record.plans, record.plans[1:], strict=False)
        if made.target != before.target
    ]
    targets = [target for _, target in changes]
    assert targets[-2:] == [0, 5]
    assert targets[-3] == 1
    assert record.removed_busy == 0


def test_a_storm_adds_nobody():
    """S42: while 60 % of the answers are 429 the target never rises."""

    def storm(state, now):
        return replace(state, rate_factor=0.5, answers=100, answers_rate=60) if now > 5 else state

    record = Simulation(rpm(60), spec(), [(0, 3), (6, 500)], lambda: 8.0, adjust=storm).run(120)
    assert max(record.targets) == 3
