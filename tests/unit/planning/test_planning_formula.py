import math

import pytest

from llmqueue_operator.planning.formula import (
    backlog_for_wait,
    clamp,
    demand,
    room,
    rounded_cap,
    steady_cap,
    sustained_calls,
    unrounded_cap,
    usable_per_second,
)
from unit.planning.builders import rpm


def test_the_worked_example_sustains_787_calls_and_needs_11_workers():
    in_flight = sustained_calls(usable_per_second(rpm(60)), 8.0)
    assert in_flight == pytest.approx(7.869, abs=0.001)
    assert rounded_cap(unrounded_cap(in_flight, math.inf, 1), 1.0) == 11


@pytest.mark.parametrize(
    ("limit", "per_second"),
    [
        pytest.param(rpm(60), 60 / 61, id="minute"),
        pytest.param(rpm(10, 1), 5.0, id="second: half of it is jitter"),
        pytest.param(rpm(86_400, 86_400), 86_400 / 86_401, id="day"),
    ],
)
def test_a_second_of_each_window_is_jitter(limit, per_second):
    assert usable_per_second(limit) == pytest.approx(per_second)


@pytest.mark.parametrize(
    ("in_flight", "most", "slots", "cap"),
    [
        pytest.param(9.0, math.inf, 1, 12, id="L + sqrt L"),
        pytest.param(9.0, math.inf, 8, 2, id="slots"),
        pytest.param(9.0, 4.0, 1, 4, id="max in flight"),
        pytest.param(9.0, 4.0, 3, 2, id="max in flight rounds up to whole workers"),
        pytest.param(0.01, math.inf, 8, 1, id="at least one while anything is granted"),
        pytest.param(math.inf, math.inf, 8, math.inf, id="no limit known"),
    ],
)
def test_cap(in_flight, most, slots, cap):
    assert rounded_cap(unrounded_cap(in_flight, most, slots), 1.0) == cap


def test_no_rate_no_worker():
    assert rounded_cap(0.0, 0.0) == 0


@pytest.mark.parametrize(
    ("raw", "target", "cap"),
    [
        pytest.param(11.01, 11, 12, id="above: raised at once"),
        pytest.param(11.0, 11, 11, id="equal"),
        pytest.param(10.2, 11, 11, id="a little below: kept"),
        pytest.param(9.5, 11, 11, id="the margin itself: kept"),
        pytest.param(9.49, 11, 10, id="below the margin: lowered"),
    ],
)
def test_only_the_unrounded_cap_has_hysteresis(raw, target, cap):
    assert steady_cap(raw, 1.0, target) == cap


@pytest.mark.parametrize(
    ("stayers", "marked", "leaving", "left"),
    [
        pytest.param(10, [], 0, 10.0, id="nobody drains"),
        pytest.param(1, [1] * 9, 0, 10.0, id="marked workers can be taken back"),
        pytest.param(1, [], 9, 1.0, id="S26 workers that end cannot"),
        pytest.param(8, [1, 1, 1], 0, 7.0, id="stayers fill the room already"),
        pytest.param(0, [4, 0], 3, 7.0, id="the busiest is taken back first"),
    ],
)
def test_calls_of_draining_workers_take_room(stayers, marked, leaving, left):
    found = room(10.0, 1, stayers=stayers, marked_in_flight=marked, leaving_in_flight=leaving)
    assert found == left


@pytest.mark.parametrize(("backlog", "slots", "workers"), [(0, 8, 0), (1, 8, 1), (17, 8, 3)])
def test_demand(backlog, slots, workers):
    assert demand(backlog, slots) == workers


@pytest.mark.parametrize(
    ("backlog", "in_flight", "arrivals", "needed"),
    [
        pytest.param(1000, 0, 0.0, 80.0, id="ready / T x W"),
        pytest.param(1000, 0, 2.0, 96.0, id="plus arrivals"),
        pytest.param(1000, 90, 0.0, 90, id="never below what runs"),
        pytest.param(30, 0, 0.0, 30, id="never above the backlog"),
    ],
)
def test_a_target_wait_lowers_demand(backlog, in_flight, arrivals, needed):
    found = backlog_for_wait(
        backlog,
        in_flight=in_flight,
        ready=1000,
        arrivals_per_second=arrivals,
        target_queue_wait_seconds=100.0,
        slot_seconds=8.0,
    )
    assert found == pytest.approx(needed)


@pytest.mark.parametrize(
    ("value", "low", "high", "clamped"), [(5, 0, 9, 5), (5, 6, 9, 6), (5, 0, 3, 3), (5, 9, 3, 3)]
)
def test_clamp(value, low, high, clamped):
    assert clamp(value, low, high) == clamped
