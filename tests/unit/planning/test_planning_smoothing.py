import pytest

from llmqueue_operator.planning import QueueMemory
from llmqueue_operator.planning.smoothing import in_force, step
from unit.planning.builders import (
    crew,
    group,
    plan_one,
    queue_input,
    remembering,
    seen,
    spec,
    store,
)


@pytest.mark.parametrize(
    ("wishes", "wish", "now", "kept"),
    [
        pytest.param((), 3, 0, ((0, 3),), id="first"),
        pytest.param(((0, 3),), 3, 1, ((1, 3),), id="the same: one entry, renewed"),
        pytest.param(((0, 3),), 5, 1, ((1, 5),), id="higher covers all"),
        pytest.param(((0, 3),), 2, 1, ((1, 3), (1, 2)), id="lower: until now it was 3"),
        pytest.param(((1, 3), (9, 2)), 2, 61, ((61, 2),), id="left the window"),
        pytest.param(((0, 3),), 1, 500, ((500, 3), (500, 1)), id="a gap counts as the wish before"),
    ],
)
def test_wishes_in_force(wishes, wish, now, kept):
    assert in_force(wishes, wish, now, 60.0) == kept


def run(wishes, memory=None, start=0.0, **scaling):
    """Targets for one wish a second."""
    settings = spec(**scaling)
    memory = memory or QueueMemory()
    steps = []
    for second, wish in enumerate(wishes):
        now = start + second
        idle = now if memory.idle_since is None else memory.idle_since
        memory = QueueMemory(
            target=memory.target,
            last_up=memory.last_up,
            wishes=in_force(memory.wishes, wish, now, settings.stabilization_seconds),
            idle_since=idle if wish == 0 else None,
        )
        taken = step(memory, wish, settings, now)
        last_up = now if taken.target > memory.target else memory.last_up
        memory = QueueMemory(taken.target, memory.wishes, last_up, memory.idle_since)
        steps.append(taken)
    return steps


def test_up_at_once():
    """S29: the full wish in the first plan that sees it."""
    assert [s.target for s in run([0, 38])] == [0, 38]


def test_ten_to_eleven_happens():
    """S30: demand has no hysteresis."""
    assert run([10, 11])[-1].target == 11


def test_down_by_the_highest_wish_of_the_window():
    steps = run([10] * 100 + [4] * 30 + [6] + [4] * 200)
    targets = [s.target for s in steps]
    assert targets[100:160] == [10] * 60
    assert targets[160] == 6
    assert targets[-1] == 4
    assert len(set(targets)) == 3


def test_one_change_of_direction_a_window():
    """S33: not down within a window of the last up."""
    steps = run([5] * 70 + [9] + [5] * 100)
    targets = [s.target for s in steps]
    assert targets[70:131] == [9] * 61
    assert targets[131] == 5


def test_one_clock_says_why_and_when():
    """S28: reason and next allowed time count down to the change."""
    steps = run([10] * 80 + [4] * 61)
    waiting = steps[90]
    assert waiting.reason == "StabilizationWindow"
    assert steps[90 + round(waiting.next_change_seconds)].target == 4
    assert steps[89].next_change_seconds == waiting.next_change_seconds + 1
    assert steps[0].reason == "ScaledUp"
    assert steps[60].reason == "Steady"


def test_to_zero_by_steps():
    """S27: 20 idle at cool-down: to min first, then 0."""
    steps = run([20] * 100 + [0] * 400)
    changes = [(i, s.target) for i, s in enumerate(steps) if i and s.target != steps[i - 1].target]
    assert changes == [(160, 1), (400, 0)]
    assert steps[200].reason == "IdleTimer"
    assert steps[200].next_change_seconds == 200
    assert steps[400].reason == "ScaledToZero"
    assert steps[401].reason == "Idle"


def test_to_zero_takes_two_steps_even_with_a_short_timer():
    """S27: never from N to 0 in one step."""
    targets = [s.target for s in run([20] * 10 + [0] * 90, idle_seconds=5.0)]
    assert [t for t in targets if t < 20][:2] == [1, 0]


def test_min_replicas_are_the_floor():
    """S27: with minReplicas 3 the cool-down ends there."""
    scaling = spec(min_replicas=3, idle_seconds=5.0)
    pods, workers = crew(idle=20)
    memory = remembering(20)
    for now in range(1000):
        made, memory = plan_one(
            group(queue_input(scaling, pods), store([seen()], workers)), memory, float(now)
        )
    assert made.target == 3
    assert made.bound_by == "MinReplicas"


def test_a_stopped_operator_does_not_shorten_the_window():
    memory = QueueMemory(target=10, wishes=((0.0, 10),), last_up=0.0)
    steps = run([2] * 62, memory, start=500.0)
    assert [steps[0].target, steps[59].target, steps[60].target] == [10, 10, 2]
