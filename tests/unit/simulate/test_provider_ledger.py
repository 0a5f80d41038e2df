"""What the simulated provider counts: bills by job, and the worst window of every limit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmqueue_cli.simulate.ledger import Ledger
from llmqueue_cli.simulate.limits import Demand, Dimension, Limits, TokenCounting

ONE = Limits(requests=10, tokens=1000)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def _ledger(clock: Clock, counting: TokenCounting = "keep") -> Ledger:
    return Ledger(clock=clock, wall=lambda: clock.now + 1e9, counting=counting, window_seconds=60.0)


@given(
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 9)), min_size=1, max_size=60),
)
def test_the_worst_window_is_that_of_all_windows(calls: list[tuple[int, int]]) -> None:
    clock = Clock()
    ledger = _ledger(clock)
    arrived: list[tuple[float, int]] = []
    for gap, tokens in calls:
        clock.now += gap / 16
        ledger.arrive(key="", demand=Demand(tokens), limits=ONE)
        arrived.append((clock.now, tokens))
    windows = [[t for at, t in arrived if end - 60 < at <= end] for end, _ in arrived]
    assert ledger.worst(Dimension.REQUESTS).amount == max(map(len, windows))
    assert ledger.worst(Dimension.TOKENS).amount == max(map(sum, windows))


def test_calls_a_whole_window_apart_are_not_in_one(clock: Clock) -> None:
    ledger = _ledger(clock)
    for clock.now in (1.0, 60.9, 61.0):
        ledger.arrive(key="", demand=Demand(), limits=ONE)
    assert ledger.worst(Dimension.REQUESTS).amount == 2


def test_with_correct_counting_a_refused_call_keeps_what_it_asked_for(clock: Clock) -> None:
    ledger = _ledger(clock, "correct")
    call = ledger.arrive(key="", demand=Demand(10, 500), limits=ONE)
    call.refused()
    call.ended()
    assert ledger.worst(Dimension.TOKENS).amount == 500


def test_the_dimension_nearest_its_limit_is_named(clock: Clock) -> None:
    ledger = _ledger(clock)
    for _ in range(3):
        ledger.arrive(key="", demand=Demand(300), limits=ONE)
    stats = ledger.stats(ONE)
    assert (stats["worst_60s"], stats["limit"], stats["dimension"]) == (900, 1000, "tokens")
    assert stats["worst"]["requests"] == {"worst": 3, "limit": 10}


def test_without_limits_the_worst_window_is_of_requests(clock: Clock) -> None:
    ledger = _ledger(clock)
    ledger.arrive(key="", demand=Demand(300), limits=Limits())
    stats = ledger.stats(Limits())
    assert (stats["worst_60s"], stats["limit"], stats["dimension"]) == (1, None, "requests")


def test_a_window_is_measured_against_the_limit_in_force_at_its_end(clock: Clock) -> None:
    ledger = _ledger(clock)
    for _ in range(10):
        ledger.arrive(key="", demand=Demand(), limits=Limits(requests=100))
    clock.now = 59.0
    ledger.arrive(key="", demand=Demand(), limits=Limits(requests=5))
    assert ledger.stats(Limits())["worst_60s"] == 11
    assert ledger.stats(Limits())["limit"] == 5


def test_refused_calls_count_in_the_windows_that_arrived(clock: Clock) -> None:
    ledger = _ledger(clock)
    for number in range(12):
        call = ledger.arrive(key="", demand=Demand(), limits=ONE)
        if number >= 10:
            call.refused()
            call.answered(429)
            call.ended()
    stats = ledger.stats(ONE)
    assert (stats["calls"], stats["worst_60s"], stats["answered_429"]) == (12, 12, 2)
    assert stats["injected_429"] == 0


def test_injected_answers_are_not_the_limiters(clock: Clock) -> None:
    ledger = _ledger(clock)
    for fault, status in (("rate429", 429), ("slow_down", 429), ("529", 529), ("cut_body", 200)):
        call = ledger.arrive(key="", demand=Demand(), limits=ONE)
        call.injected(fault)
        call.answered(status)
        call.ended()
    stats = ledger.stats(ONE)
    assert (stats["answered_429"], stats["injected_429"], stats["injected_529"]) == (0, 2, 1)
    assert stats["injected"] == {"rate429": 1, "slow_down": 1, "529": 1, "cut_body": 1}
    assert stats["by_status"] == {"429": 2, "529": 1, "200": 1}
    assert stats["ok"] == 1


def test_a_job_billed_by_two_calls_is_billed_twice(clock: Clock) -> None:
    ledger = _ledger(clock)
    for key in ("a/1", "b/1", "a/2", "", ""):
        call = ledger.arrive(key=key, demand=Demand(), limits=ONE)
        assert call.bill(10, 5, counted_input_tokens=10)
        assert not call.bill(10, 5, counted_input_tokens=10)
        call.ended()
    ledger.arrive(key="c/1", demand=Demand(), limits=ONE).ended()
    stats = ledger.stats(ONE)
    assert stats["billed"] == {"calls": 5, "jobs": 2, "input_tokens": 50, "output_tokens": 25}
    assert (stats["billed_twice"], stats["billed_twice_jobs"]) == (1, ["a"])
    assert ledger.billed_by_job() == {"a": 2, "b": 1}


@pytest.mark.parametrize(
    ("key", "job"),
    [
        pytest.param("job-1/3", "job-1", id="job and call"),
        pytest.param("ns/job/3", "ns/job", id="slashes inside"),
        pytest.param("alone", "alone", id="no slash"),
        pytest.param("", "", id="no key"),
    ],
)
def test_the_job_is_what_precedes_the_last_slash(clock: Clock, key: str, job: str) -> None:
    assert _ledger(clock).arrive(key=key, demand=Demand(), limits=ONE).record.job == job


def test_correct_counting_measures_actual_usage_output_when_produced(clock: Clock) -> None:
    limits = Limits(tokens=1000, input_tokens=1000, output_tokens=1000)
    ledger = _ledger(clock, "correct")
    call = ledger.arrive(key="", demand=Demand(10, 500), limits=limits)
    assert ledger.worst(Dimension.TOKENS).amount == 500
    clock.now = 50.0
    call.bill(25, 30, counted_input_tokens=20)
    call.ended()
    assert ledger.worst(Dimension.TOKENS).amount == 50
    assert ledger.worst(Dimension.INPUT_TOKENS).amount == 20
    clock.now = 105.0
    other = ledger.arrive(key="", demand=Demand(10, 500), limits=limits)
    other.bill(10, 40, counted_input_tokens=10)
    assert ledger.worst(Dimension.OUTPUT_TOKENS).amount == 70
    assert ledger.worst(Dimension.INPUT_TOKENS).amount == 20


@pytest.mark.parametrize(("counting", "counted"), [("keep", 500), ("correct", 0)])
def test_a_failed_call_keeps_its_reservation_or_gives_it_back(
    clock: Clock, counting: TokenCounting, counted: int
) -> None:
    ledger = _ledger(clock, counting)
    ledger.arrive(key="", demand=Demand(10, 500), limits=ONE).ended()
    assert ledger.worst(Dimension.TOKENS).amount == counted
    assert ledger.worst(Dimension.REQUESTS).amount == 1


def test_calls_in_flight_are_counted_and_the_most_of_them(clock: Clock) -> None:
    ledger = _ledger(clock)
    calls = [ledger.arrive(key="", demand=Demand(), limits=ONE) for _ in range(3)]
    for call in calls:
        call.ended()
    ledger.arrive(key="", demand=Demand(), limits=ONE)
    stats = ledger.stats(ONE)
    assert (stats["in_flight"], stats["max_in_flight"]) == (1, 3)


def test_the_log_has_each_call_in_unix_seconds(clock: Clock) -> None:
    ledger = _ledger(clock)
    for number in range(3):
        call = ledger.arrive(key=f"j{number}/1", demand=Demand(4, 9), limits=ONE, model="m")
        clock.now += 2
        call.answered(200)
        call.bill(4, 7, counted_input_tokens=4)
        call.ended()
    assert len(list(ledger.log())) == 3
    (last,) = ledger.log(2)
    assert (last["number"], last["job"], last["status"], last["model"]) == (2, "j2", 200, "m")
    assert (last["start"], last["end"]) == (1e9 + 4, 1e9 + 6)
    assert (last["input_tokens"], last["output_tokens"], last["reserved_tokens"]) == (4, 7, 9)


def test_a_reset_forgets_counts_and_calls_that_still_run_end_uncounted(clock: Clock) -> None:
    ledger = _ledger(clock)
    running = ledger.arrive(key="a/1", demand=Demand(), limits=ONE)
    ledger.reset()
    running.answered(200)
    running.bill(1, 1, counted_input_tokens=1)
    running.ended()
    stats = ledger.stats(ONE)
    assert (stats["calls"], stats["in_flight"], stats["by_status"]) == (0, 0, {})
    assert stats["billed"]["calls"] == 0
    assert stats["first_start"] is None
