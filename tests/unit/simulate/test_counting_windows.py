"""The two ways of counting, against the definitions: every window summed anew."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmqueue_cli.simulate.window import PerSecondBucket, SlidingWindow

# Sixteenths are exact in floats, so that "exactly at the edge" means it.
steps = st.integers(0, 32).map(lambda n: n / 16)
arrivals = st.lists(st.tuples(steps, st.integers(0, 6)), max_size=60)


def _sum(accepted: list[tuple[float, int]], now: float, seconds: float) -> int:
    return sum(amount for at, amount in accepted if now - seconds < at <= now)


@given(arrivals, st.integers(0, 12))
def test_no_window_holds_more_than_the_limit_and_none_is_refused_needlessly(
    gaps: list[tuple[float, int]], limit: int
) -> None:
    window, now = SlidingWindow(4.0), 0.0
    accepted: list[tuple[float, int]] = []
    for gap, amount in gaps:
        now += gap
        fits = _sum(accepted, now, 4.0) + amount <= limit
        assert (window.wait(now, amount, limit) == 0.0) is fits
        if fits:
            window.add(now, amount)
            accepted.append((now, amount))
    for at, _ in accepted:
        assert _sum(accepted, at, 4.0) <= limit
        # Wherever a window ends: just before the next charge leaves is the fullest moment.
        assert _sum(accepted, at + 4.0 - 1 / 32, 4.0) <= limit


@given(arrivals, st.integers(1, 12), st.integers(0, 12))
def test_a_wait_is_the_earliest_time_at_which_it_fits(
    gaps: list[tuple[float, int]], limit: int, amount: int
) -> None:
    window, now = SlidingWindow(4.0), 0.0
    for gap, size in gaps:
        now += gap
        window.add(now, size)
    wait = window.wait(now, amount, limit)
    if amount > limit:
        assert math.isinf(wait)
        return
    assert 0 <= wait <= 4.0
    if wait:
        assert window.wait(now + wait - 1 / 32, amount, limit) > 0
    assert window.wait(now + wait, amount, limit) == 0


def test_what_was_counted_leaves_exactly_one_window_later() -> None:
    window = SlidingWindow(60.0)
    window.add(100.0, 5)
    assert window.used(math.nextafter(160.0, 0)) == 5
    assert window.used(160.0) == 0


def test_a_correction_changes_what_is_inside_and_not_what_has_left() -> None:
    window = SlidingWindow(60.0)
    early = window.add(0.0, 10)
    late = window.add(30.0, 10)
    window.correct(late, 4, now=31.0)
    assert window.used(31.0) == 14
    window.correct(early, 1, now=61.0)
    assert window.used(61.0) == 4
    assert window.used(90.0) == 0


@pytest.mark.parametrize(
    ("limit", "burst"),
    [
        pytest.param(6, 5, id="slow: five calls"),
        pytest.param(100, 5, id="3 seconds' worth are five calls"),
        pytest.param(120, 6, id="3 seconds' worth"),
        pytest.param(600, 30, id="fast"),
    ],
)
def test_a_bucket_holds_three_seconds_worth_or_five_calls(limit: int, burst: int) -> None:
    bucket = PerSecondBucket(60.0)
    taken = 0
    while bucket.wait(1000.0, 1, limit) == 0:
        bucket.take(1000.0, 1, limit)
        taken += 1
    assert taken == burst
    wait = bucket.wait(1000.0, 1, limit)
    assert wait == pytest.approx(60 / limit)
    assert bucket.wait(1000.0 + wait, 1, limit) == 0


@given(st.lists(st.floats(0, 3), max_size=200), st.integers(1, 600))
def test_a_bucket_gives_no_more_than_its_burst_and_its_refill(
    gaps: list[float], limit: int
) -> None:
    bucket, now = PerSecondBucket(60.0), 0.0
    rate = limit / 60
    times: list[float] = []
    for gap in gaps:
        now += gap
        if bucket.wait(now, 1, limit) == 0:
            bucket.take(now, 1, limit)
            times.append(now)
    burst = max(3 * rate, 5)
    for first in range(len(times)):
        for last in range(first, len(times)):
            allowed = burst + rate * (times[last] - times[first])
            assert last - first + 1 <= allowed + 1e-6


def test_a_bucket_without_refill_never_has_more() -> None:
    bucket = PerSecondBucket(60.0)
    for _ in range(5):
        assert bucket.wait(0.0, 1, 0) == 0
        bucket.take(0.0, 1, 0)
    assert math.isinf(bucket.wait(1e9, 1, 0))


def test_what_is_put_back_can_be_taken_again() -> None:
    bucket = PerSecondBucket(60.0)
    bucket.take(0.0, 100, 60)
    before = bucket.wait(0.0, 10, 60)
    bucket.take(0.0, -20, 60)
    assert bucket.wait(0.0, 10, 60) == pytest.approx(before - 20)
