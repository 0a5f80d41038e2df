"""A user's partial pod template over the operator's."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmqueue_operator.pods.merge import merged


@pytest.mark.parametrize(
    ("ours", "theirs", "both"),
    [
        pytest.param({"a": 1}, {"b": 2}, {"a": 1, "b": 2}, id="adds"),
        pytest.param({"a": 1}, {"a": 2}, {"a": 2}, id="replaces"),
        pytest.param({"a": {"x": 1, "y": 2}}, {"a": {"y": 3}}, {"a": {"x": 1, "y": 3}}, id="deep"),
        pytest.param({"a": 1, "b": 2}, {"a": None}, {"b": 2}, id="null takes away"),
        pytest.param({}, {"a": None}, {}, id="null where nothing is"),
        pytest.param({"a": [1, 2]}, {"a": [3]}, {"a": [3]}, id="other lists replace"),
        pytest.param({"a": 1}, {"a": {"x": 1}}, {"a": {"x": 1}}, id="another kind replaces"),
        pytest.param(
            {"containers": [{"name": "w", "image": "i", "env": [{"name": "A", "value": "1"}]}]},
            {"containers": [{"name": "w", "env": [{"name": "B", "value": "2"}]}]},
            {
                "containers": [
                    {
                        "name": "w",
                        "image": "i",
                        "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                    }
                ]
            },
            id="containers by name, their env too",
        ),
        pytest.param(
            {"containers": [{"name": "w"}]},
            {"containers": [{"name": "p"}, {"name": "w", "x": 1}]},
            {"containers": [{"name": "w", "x": 1}, {"name": "p"}]},
            id="ours keep their place",
        ),
        pytest.param(
            {"env": [{"name": "A", "value": "1"}]},
            {"env": [{"name": "A", "valueFrom": {"x": 1}}]},
            {"env": [{"name": "A", "valueFrom": {"x": 1}}]},
            id="a variable has one source",
        ),
        pytest.param(
            {"volumes": [{"name": "tmp", "emptyDir": {}}]},
            {"volumes": [{"name": "tmp", "hostPath": {"path": "/x"}}]},
            {"volumes": [{"name": "tmp", "hostPath": {"path": "/x"}}]},
            id="a volume has one source",
        ),
        pytest.param(
            {"volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}]},
            {"volumeMounts": [{"name": "mine", "mountPath": "/tmp"}]},
            {"volumeMounts": [{"name": "mine", "mountPath": "/tmp"}]},
            id="mounts by path",
        ),
        pytest.param(
            {"volumes": [{"name": "tmp"}]},
            {"volumes": ["odd", {"name": ["odd"]}, {}]},
            {"volumes": [{"name": "tmp"}, "odd", {"name": ["odd"]}, {}]},
            id="nonsense goes through",
        ),
        pytest.param({"volumes": [{"name": "t"}]}, {"volumes": 5}, {"volumes": 5}, id="no list"),
    ],
)
def test_merged(ours: Any, theirs: Any, both: Any) -> None:
    before = copy.deepcopy((ours, theirs))
    assert merged(ours, theirs) == both
    assert (ours, theirs) == before, "neither is changed"


NAMES = st.sampled_from(["name", "env", "containers", "volumes", "mountPath", "x"])
JSON = st.recursive(
    st.booleans() | st.integers(0, 3) | st.sampled_from(["a", "b"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=12,
)
DOCUMENTS = st.dictionaries(NAMES, JSON, max_size=4)
ITEMS = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from("abcd")}, optional={"x": st.integers(0, 3)}),
    unique_by=lambda item: item["name"],
    max_size=4,
)


@given(DOCUMENTS)
def test_nothing_over_something_is_that(ours: Any) -> None:
    assert merged(ours, {}) == ours
    assert merged({}, ours) == ours


@given(ITEMS, ITEMS)
def test_items_are_told_apart_by_name(ours: Any, theirs: Any) -> None:
    both = merged({"containers": ours}, {"containers": theirs})["containers"]
    names = [item["name"] for item in both]
    assert names[: len(ours)] == [item["name"] for item in ours]
    assert sorted(names) == sorted({item["name"] for item in (*ours, *theirs)})
    again = merged({"containers": both}, {"containers": theirs})["containers"]
    assert again == both, "applying the same once more changes nothing"
