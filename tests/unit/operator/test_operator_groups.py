"""LLMQueues on one budget."""

from __future__ import annotations

from typing import Any

import pytest

from llmqueue.config import Limit
from llmqueue.states import LimitUnit
from llmqueue_operator.groups import Assembly, assemble
from llmqueue_operator.planning import ConditionType, Reason
from llmqueue_operator.views import queue_view
from support.clusterobjects import llmqueue


def shared(name: str, *, weight: int = 1, **fields: Any) -> dict[str, Any]:
    """On the budget `team`, 600 requests a minute."""
    limits = {"requestsPerMinute": 600, **fields.pop("limits", {})}
    limits["sharedBudget"] = {"name": "team", "weight": weight}
    return llmqueue(name, limits=limits, **fields)


def assembled(*raws: dict[str, Any]) -> Assembly:
    return assemble([queue_view(raw) for raw in raws])


def test_nobody() -> None:
    assert assemble([]) == Assembly(None, {})


def test_one_queue_on_its_own() -> None:
    group = assembled(llmqueue("q", redis={"connection": "big"})).group
    assert group is not None
    assert (group.name, group.connection, group.conflicts) == ("default/q", "big", ())
    assert group.budget.limits == (Limit(LimitUnit.REQUESTS, 60),)
    assert [member.key for member in group.members] == ["default/q"]


def test_a_shared_budget() -> None:
    """S46: both take part, each with its weight and its own scaling."""
    group = assembled(
        shared("a", weight=2, scaling={"maxReplicas": 7}), shared("b", weight=1)
    ).group
    assert group is not None
    assert group.name == "default/~team"
    assert [(m.key, m.config.weight) for m in group.members] == [("default/a", 2), ("default/b", 1)]
    assert [m.scaling.max_replicas for m in group.members] == [7, 20]
    assert group.conflicts == ()


@pytest.mark.parametrize(
    ("other", "field"),
    [
        pytest.param({"provider": {"type": "anthropic"}}, "provider.type", id="provider"),
        pytest.param({"redis": {"connection": "big"}}, "redis.connection", id="connection"),
    ],
)
def test_members_that_exclude_each_other(other: dict[str, Any], field: str) -> None:
    """The oldest counts; the other one is told what differs and from whom."""
    found = assembled(shared("a"), shared("b", **other), shared("c"))
    assert found.group is not None
    assert [member.key for member in found.group.members] == ["default/a", "default/c"]
    (refused,) = found.refused.items()
    assert refused[0] == "default/b"
    assert (refused[1].type, refused[1].status) == (ConditionType.READY, False)
    assert refused[1].reason == Reason.MEMBERS_DIFFER
    assert field in refused[1].message
    assert "default/a" in refused[1].message


def test_one_that_cannot_be_read_holds_nobody_up() -> None:
    """S35."""
    found = assembled(llmqueue("bad", limits={}), shared("a"))
    assert found.group is not None
    assert [member.key for member in found.group.members] == ["default/a"]
    refused = found.refused["default/bad"]
    assert refused.reason == Reason.INVALID_SPEC
    assert "at least one limit" in refused.message


def test_all_refused() -> None:
    found = assembled(llmqueue("bad", limits={}))
    assert found.group is None
    assert set(found.refused) == {"default/bad"}


@pytest.mark.parametrize(
    ("ours", "theirs", "named"),
    [
        pytest.param({}, {}, "", id="alike"),
        pytest.param({}, {"requestsPerMinute": 500}, "requestsPerMinute", id="a number"),
        pytest.param({"maxInFlight": 5}, {}, "maxInFlight", id="only one declares it"),
        pytest.param(
            {"tokensPerDay": 9, "inputTokensPerMinute": 2},
            {"tokensPerDay": 8, "inputTokensPerMinute": 3},
            "inputTokensPerMinute, tokensPerDay",
            id="two",
        ),
        pytest.param(
            {"requestsPerDay": 5, "dayTimeZone": "UTC"},
            {"requestsPerDay": 5},
            "dayTimeZone",
            id="whose midnight",
        ),
        pytest.param({"dayTimeZone": "UTC"}, {}, "", id="nobody's midnight"),
        pytest.param({"defaultMaxOutputTokens": 5}, {}, "", id="no limit of the budget"),
    ],
)
def test_limits_that_differ(ours: dict[str, Any], theirs: dict[str, Any], named: str) -> None:
    """The lowest counts, condition BudgetConflict on all."""
    group = assembled(shared("a", limits=ours), shared("b", limits=theirs)).group
    assert group is not None
    assert len(group.members) == 2
    if not named:
        assert group.conflicts == ()
        return
    (conflict,) = group.conflicts
    assert (conflict.type, conflict.status) == (ConditionType.BUDGET_CONFLICT, True)
    assert conflict.reason == Reason.LIMITS_DIFFER
    assert f"({named})" in conflict.message


def test_of_limits_that_differ_the_lowest_counts() -> None:
    group = assembled(shared("a"), shared("b", limits={"requestsPerMinute": 500})).group
    assert group is not None
    assert group.budget.limits == (Limit(LimitUnit.REQUESTS, 500),)
