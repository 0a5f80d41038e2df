"""Whether the watches still bring news."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmqueue_operator.freshness import PATIENCE_SECONDS, Freshness
from llmqueue_operator.kube.kinds import LLMQUEUES, PODS
from support.clusterobjects import pod


class Bench:
    def __init__(self) -> None:
        self.now = 100.0
        self.freshness = Freshness(lambda: self.now)

    def watched(self, name: str, version: int | str) -> None:
        self.freshness.seen(PODS, pod(name, version=version))

    def listed(self, **versions: int | str) -> None:
        self.freshness.listed(PODS, [pod(name, version=v) for name, v in versions.items()])

    @property
    def stale(self) -> str | None:
        return self.freshness.stale()

    def later(self, seconds: float = PATIENCE_SECONDS + 1) -> str | None:
        self.now += seconds
        return self.stale


def test_nothing_seen_is_fine() -> None:
    assert Bench().later(100_000) is None


def test_a_list_shows_what_the_watch_does_not() -> None:
    """S50: the API server answers lists while a watch hangs: liveness tells, after a minute."""
    bench = Bench()
    bench.watched("a", 1)
    bench.listed(a=2)
    assert bench.later(PATIENCE_SECONDS) is None
    assert bench.later(1) == "pods"


def test_an_object_that_the_watch_never_brought() -> None:
    bench = Bench()
    bench.listed(a=1)
    assert bench.later() == "pods"


@pytest.mark.parametrize(
    "news",
    [
        pytest.param(lambda b: b.watched("a", 5), id="that version"),
        pytest.param(lambda b: b.watched("a", 6), id="a later one"),
        pytest.param(lambda b: b.listed(), id="the object is gone"),
    ],
)
def test_news_that_come_late_are_news(news: Callable[[Bench], None]) -> None:
    bench = Bench()
    bench.watched("a", 4)
    bench.listed(a=5)
    assert bench.later() == "pods"
    news(bench)
    assert bench.stale is None
    assert bench.later() is None


@pytest.mark.parametrize(
    "noise",
    [
        pytest.param(lambda b: b.watched("a", 4), id="an older version"),
        pytest.param(lambda b: b.watched("b", 9), id="another object"),
        pytest.param(lambda b: b.listed(a=5), id="the list again"),
        pytest.param(lambda b: b.listed(a=7), id="a newer list"),
        pytest.param(lambda b: b.freshness.listed(LLMQUEUES, []), id="another kind's list"),
    ],
)
def test_what_is_no_news(noise: Callable[[Bench], None]) -> None:
    bench = Bench()
    bench.listed(a=5)
    bench.now += PATIENCE_SECONDS
    noise(bench)
    assert bench.later(1) == "pods"


def test_a_watch_ahead_of_the_list_is_fine() -> None:
    bench = Bench()
    bench.watched("a", 9)
    bench.listed(a=8)
    assert bench.later() is None


def test_an_object_made_during_the_list() -> None:
    """The watch brought it, the list does not show it yet."""
    bench = Bench()
    bench.watched("a", 9)
    bench.listed()
    bench.watched("a", 10)
    bench.listed(a=10)
    assert bench.later() is None


def test_the_clock_runs_from_the_first_list_that_showed_it() -> None:
    """Lists come more often than a minute: the patience must not begin anew with each."""
    bench = Bench()
    for version in range(2, 20):
        bench.listed(a=version)
        bench.now += 10
    assert bench.stale == "pods"


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.floats(1, 50)), max_size=40))
def test_a_watch_that_brings_everything_in_time_is_never_stale(
    events: list[tuple[Any, bool, float]],
) -> None:
    """Any mix of changes and lists, each change brought before the next list but one."""
    bench, versions, owed = Bench(), dict[str, int](), set[str]()
    for number, (name, is_list, pause) in enumerate(events, start=1):
        if is_list:
            bench.listed(**versions)
        else:
            versions[name] = number
            owed.add(name)
        bench.now += pause
        for each in owed:
            bench.watched(each, versions[each])
        owed.clear()
        assert bench.stale is None
