"""Pods that went without having been chosen."""

from __future__ import annotations

import pytest

from llmqueue_operator.removals import Removals
from llmqueue_operator.views import PodState, pod_state
from support.clusterobjects import pod

KEY = "default/q"


def pods(*names: str, ending: tuple[str, ...] = ()) -> list[PodState]:
    made = [pod_state(pod(name, deleting=name in ending)) for name in names]
    return [state for state in made if state is not None]


@pytest.mark.parametrize(
    ("named", "after", "count"),
    [
        pytest.param((), pods("a", "b", "c"), 0, id="all stay"),
        pytest.param((), pods("a", "b"), 1, id="one is gone"),
        pytest.param((), pods("a", "b", "c", ending=("b", "c")), 2, id="two are ending"),
        pytest.param(("c",), pods("a", "b"), 0, id="it was named"),
        pytest.param(("a",), pods("a", "b"), 1, id="another one was named"),
        pytest.param((), pods("a", "b", "c", "d"), 0, id="one came"),
    ],
)
def test_counted(named: tuple[str, ...], after: list[PodState], count: int) -> None:
    removals = Removals()
    assert removals.unplanned(KEY, pods("a", "b", "c"), named, rolling=False) == 0
    assert removals.unplanned(KEY, after, (), rolling=False) == count
    assert removals.unplanned(KEY, after, (), rolling=False) == 0, "told once"


def test_a_rollout_names_its_own() -> None:
    removals = Removals()
    removals.unplanned(KEY, pods("a", "b"), (), rolling=False)
    assert removals.unplanned(KEY, pods("b", "c"), (), rolling=True) == 0


def test_named_some_ticks_ago() -> None:
    """A pod may go some ticks after it was named: its deletion cost comes first."""
    removals = Removals()
    removals.unplanned(KEY, pods("a", "b"), ("a",), rolling=False)
    removals.unplanned(KEY, pods("a", "b"), (), rolling=False)
    assert removals.unplanned(KEY, pods("b"), (), rolling=False) == 0


def test_a_new_term_begins_with_what_is_there() -> None:
    removals = Removals()
    removals.unplanned(KEY, pods("a", "b"), (), rolling=False)
    removals.forget()
    assert removals.unplanned(KEY, pods("a"), (), rolling=False) == 0


def test_the_last_old_pod_of_a_rollout() -> None:
    """When it goes only new ones are left, and nothing looks like a rollout any more."""
    removals = Removals()
    removals.unplanned(KEY, pods("old", "new"), (), rolling=True)
    assert removals.unplanned(KEY, pods("new"), (), rolling=False) == 0
    assert removals.unplanned(KEY, pods(), (), rolling=False) == 1, "long over"


@pytest.mark.parametrize("key", [None, KEY], ids=["all", "this one"])
def test_a_rollout_of_before_is_forgotten(key: str | None) -> None:
    removals = Removals()
    removals.unplanned(KEY, pods("old", "new"), (), rolling=True)
    removals.forget(key)
    removals.unplanned(KEY, pods("a", "b"), (), rolling=False)
    assert removals.unplanned(KEY, pods("a"), (), rolling=False) == 1
