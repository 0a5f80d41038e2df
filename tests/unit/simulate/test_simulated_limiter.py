"""The simulated provider's limiter: all limits or nothing, both ways of counting tokens."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmqueue_cli.simulate.limiter import Admission, Limiter, Refusal, whole_seconds
from llmqueue_cli.simulate.limits import Demand, Dimension, Level, Limits

ONE_REQUEST = Demand()


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def _admit(limiter: Limiter, demand: Demand = ONE_REQUEST) -> Admission:
    found = limiter.admit(demand)
    assert isinstance(found, Admission)
    return found


def _refuse(limiter: Limiter, demand: Demand = ONE_REQUEST) -> Refusal:
    found = limiter.admit(demand)
    assert isinstance(found, Refusal)
    return found


def test_requests_are_refused_above_the_limit_until_the_oldest_leaves(clock: Clock) -> None:
    limiter = Limiter(Limits(requests=2), clock=clock)
    _admit(limiter)
    clock.now += 10
    _admit(limiter)
    refusal = _refuse(limiter)
    assert (refusal.dimension, refusal.limit, refusal.used) == (Dimension.REQUESTS, 2, 2)
    assert refusal.wait_seconds == 50
    clock.now += 50
    _admit(limiter)


def test_a_refused_call_changes_no_level(clock: Clock) -> None:
    limiter = Limiter(Limits(requests=10, tokens=100), clock=clock)
    _admit(limiter, Demand(10, 80))
    before = limiter.levels()
    assert _refuse(limiter, Demand(10, 80)).dimension is Dimension.TOKENS
    assert limiter.levels() == before


def test_refused_calls_can_use_up_requests(clock: Clock) -> None:
    limiter = Limiter(Limits(requests=1), clock=clock, count_refused=True)
    _admit(limiter)
    for _ in range(3):
        clock.now += 50
        _refuse(limiter)


@pytest.mark.parametrize(
    ("demand", "counted"),
    [
        pytest.param(Demand(30, 100), 100, id="the maximum where it is larger"),
        pytest.param(Demand(300, 100), 300, id="the input where it is larger"),
        pytest.param(Demand(30, None), 30, id="no maximum declared"),
    ],
)
def test_a_reservation_is_the_larger_of_maximum_and_input(
    clock: Clock, demand: Demand, counted: int
) -> None:
    limiter = Limiter(Limits(tokens=1000), clock=clock)
    _admit(limiter, demand)
    assert limiter.levels()[Dimension.TOKENS].remaining == 1000 - counted


def test_keep_counts_the_reservation_whatever_was_used(clock: Clock) -> None:
    limiter = Limiter(Limits(tokens=1000, output_tokens=1000), clock=clock, counting="keep")
    limiter.settle(_admit(limiter, Demand(10, 400)), input_tokens=10, output_tokens=5)
    assert limiter.levels()[Dimension.TOKENS].remaining == 600
    assert limiter.levels()[Dimension.OUTPUT_TOKENS].remaining == 600


def test_correct_counts_what_was_used_input_on_arrival_output_as_produced(clock: Clock) -> None:
    limits = Limits(tokens=1000, input_tokens=1000, output_tokens=1000)
    limiter = Limiter(limits, clock=clock, counting="correct")
    admission = _admit(limiter, Demand(100, 400))
    assert limiter.levels()[Dimension.TOKENS].remaining == 600
    assert limiter.levels()[Dimension.INPUT_TOKENS].remaining == 900
    assert limiter.levels()[Dimension.OUTPUT_TOKENS].remaining == 1000
    clock.now += 20
    limiter.settle(admission, input_tokens=120, output_tokens=30)
    assert {each: level.remaining for each, level in limiter.levels().items()} == {
        Dimension.TOKENS: 850,
        Dimension.INPUT_TOKENS: 880,
        Dimension.OUTPUT_TOKENS: 970,
    }
    clock.now += 40
    assert {each: level.remaining for each, level in limiter.levels().items()} == {
        Dimension.TOKENS: 1000,
        Dimension.INPUT_TOKENS: 1000,
        Dimension.OUTPUT_TOKENS: 970,
    }


def test_correct_forgets_the_tokens_of_a_failed_call_but_not_the_request(clock: Clock) -> None:
    limiter = Limiter(Limits(requests=10, tokens=1000), clock=clock, counting="correct")
    limiter.settle(_admit(limiter, Demand(100, 400)), input_tokens=0, output_tokens=0)
    assert limiter.levels()[Dimension.TOKENS].remaining == 1000
    assert limiter.levels()[Dimension.REQUESTS].remaining == 9


def test_correct_refuses_while_the_produced_output_fills_its_limit(clock: Clock) -> None:
    limiter = Limiter(Limits(output_tokens=100), clock=clock, counting="correct")
    limiter.settle(_admit(limiter, Demand(1, 5)), input_tokens=1, output_tokens=100)
    assert _refuse(limiter, Demand(1, 5)).dimension is Dimension.OUTPUT_TOKENS
    clock.now += 60
    _admit(limiter, Demand(1, 5))


def test_a_call_above_the_limit_will_never_fit(clock: Clock) -> None:
    limiter = Limiter(Limits(tokens=100), clock=clock)
    refusal = _refuse(limiter, Demand(10, 500))
    assert refusal.requested == 500
    assert math.isinf(refusal.wait_seconds)
    assert whole_seconds(refusal.wait_seconds) is None


def test_the_longest_wait_is_told(clock: Clock) -> None:
    limiter = Limiter(Limits(requests=1, tokens=100), clock=clock)
    _admit(limiter, Demand(100, None))
    limiter.limits = Limits(requests=2, tokens=100)
    clock.now += 30
    limiter.limits = Limits(requests=1, tokens=100)
    refusal = _refuse(limiter, Demand(500, None))
    assert refusal.dimension is Dimension.TOKENS


def test_limits_change_live_and_apply_to_what_was_used_before(clock: Clock) -> None:
    limiter = Limiter(Limits(), clock=clock)
    for _ in range(5):
        _admit(limiter)
    limiter.limits = Limits(requests=6)
    _admit(limiter)
    _refuse(limiter)
    limiter.limits = Limits(requests=7)
    _admit(limiter)
    limiter.limits = Limits(requests=0)
    assert math.isinf(_refuse(limiter).wait_seconds)


def test_per_second_enforces_the_bucket_and_the_window(clock: Clock) -> None:
    limiter = Limiter(Limits(requests=60), clock=clock, per_second=True)
    for _ in range(5):
        _admit(limiter)
    assert _refuse(limiter).wait_seconds == pytest.approx(1.0)
    accepted = 5
    for _ in range(550):
        clock.now += 0.1
        accepted += isinstance(limiter.admit(Demand()), Admission)
    # The bucket alone would have given 5 + 55.
    assert accepted == 60
    assert _refuse(limiter).wait_seconds == pytest.approx(5.0)


@given(
    st.lists(st.tuples(st.floats(0, 20), st.integers(0, 60), st.integers(1, 60)), max_size=80),
    st.booleans(),
)
def test_no_accepted_window_is_over_any_limit(
    calls: list[tuple[float, int, int]], per_second: bool
) -> None:
    clock = Clock()
    limits = Limits(requests=7, tokens=150, input_tokens=100)
    limiter = Limiter(limits, clock=clock, per_second=per_second)
    accepted: list[tuple[float, dict[Dimension, int]]] = []
    for gap, given_tokens, most in calls:
        clock.now += gap
        demand = Demand(given_tokens, most)
        if isinstance(limiter.admit(demand), Admission):
            accepted.append((clock.now, demand.amounts("keep")))
    for end, _ in accepted:
        inside = [amounts for at, amounts in accepted if at <= end and at + 60 > end]
        for dimension in Dimension:
            limit = limits.of(dimension)
            assert limit is None or sum(each[dimension] for each in inside) <= limit


@pytest.mark.parametrize(("wait", "told"), [(0.0, 1), (0.2, 1), (1.0, 1), (1.001, 2), (59.5, 60)])
def test_a_told_wait_is_never_too_short(wait: float, told: int) -> None:
    assert whole_seconds(wait) == told


def test_a_negative_limit_is_refused() -> None:
    with pytest.raises(ValueError, match="tokens is negative: -1"):
        Limits(tokens=-1)


def test_reset_is_until_full_again_at_an_even_pace(clock: Clock) -> None:
    limiter = Limiter(Limits(requests=60), clock=clock)
    assert limiter.levels()[Dimension.REQUESTS].reset_seconds == 0.0
    for _ in range(30):
        _admit(limiter)
    assert limiter.levels()[Dimension.REQUESTS] == Level(60, 30, 30.0)
    limiter.limits = Limits(requests=20)
    assert limiter.levels()[Dimension.REQUESTS] == Level(20, 0, 60.0)
