"""Events: each once."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from llmqueue_operator.errors import ApiUnavailable
from llmqueue_operator.planning import BoundBy, QueuePlan
from llmqueue_operator.recorder import Recorder
from llmqueue_operator.views import queue_view
from support.clusterobjects import llmqueue
from support.recordedcluster import RecordedCluster
from support.virtualtime import run_virtually, settle_down

VIEW = queue_view(llmqueue())
OTHER = queue_view(llmqueue("other"))
PLAN = QueuePlan(
    queue="default/q",
    wish=4,
    target=4,
    replicas=4,
    mark=(),
    unmark=(),
    remove=(),
    bound_by=BoundBy.BACKLOG,
    reason="Steady",
    effective_rpm=60,
    eta_seconds=None,
    slot_seconds=8,
    message="because",
)


class Bench:
    def __init__(self) -> None:
        self.cluster = RecordedCluster()
        self.recorder = Recorder(self.cluster, pod="operator-1")  # type: ignore[arg-type]

    async def posted(self) -> list[tuple[str, str, str]]:
        """(type, reason, message) of everything, after it was posted."""
        task = asyncio.create_task(self.recorder.run())
        await settle_down(200)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return [(e["type"], e["reason"], e["message"]) for e in self.cluster.events]

    def news(self) -> list[tuple[str, str, str]]:
        return run_virtually(self.posted())


def test_an_event() -> None:
    bench = Bench()
    bench.recorder.event(VIEW, "Because", "x" * 5000, warning=True)
    assert bench.news() == [("Warning", "Because", "x" * 1000)]
    (event,) = bench.cluster.events
    assert event["metadata"]["namespace"] == "default"
    assert event["metadata"]["name"].startswith("q.")
    assert event["involvedObject"] == {
        "apiVersion": "llmqueue.dev/v1alpha1",
        "kind": "LLMQueue",
        "name": "q",
        "namespace": "default",
        "uid": "uid-q",
    }
    assert event["reportingInstance"] == "operator-1"


def test_names_of_events_differ() -> None:
    bench = Bench()
    for _ in range(50):
        bench.recorder.event(VIEW, "Because", "x")
    bench.news()
    assert len({event["metadata"]["name"] for event in bench.cluster.events}) == 50


def test_a_changed_target_is_told_once() -> None:
    """S28: what moved, bound by what, and why."""
    bench = Bench()
    for target in (4, 4, 6, 6, 5):
        bench.recorder.plan(VIEW, replace(PLAN, target=target))
    assert bench.news() == [
        ("Normal", "ScaledUp", "workers 4 → 6, bound by Backlog: because"),
        ("Normal", "ScaledDown", "workers 6 → 5, bound by Backlog: because"),
    ]


def test_after_a_change_of_leader_the_present_target_is_no_news() -> None:
    """S34."""
    bench = Bench()
    bench.recorder.plan(VIEW, PLAN)
    bench.recorder.forget()
    bench.recorder.plan(VIEW, replace(PLAN, target=9))
    assert bench.news() == []


def condition(kind: str, status: str, reason: str, message: str = "") -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": reason, "message": message}


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        pytest.param(
            None, condition("Ready", "True", "AsExpected"), None, id="good from the start"
        ),
        pytest.param(
            None,
            condition("Ready", "False", "InvalidSpec", "limits: x"),
            ("Warning", "InvalidSpec", "Ready is False: limits: x"),
            id="bad from the start",
        ),
        pytest.param(
            condition("Ready", "True", "AsExpected"),
            condition("Ready", "False", "QuotaExhausted"),
            ("Warning", "QuotaExhausted", "Ready is False"),
            id="lost",
        ),
        pytest.param(
            condition("Ready", "False", "QuotaExhausted"),
            condition("Ready", "True", "AsExpected"),
            ("Normal", "AsExpected", "Ready is True"),
            id="regained",
        ),
        pytest.param(
            condition("Ready", "False", "QuotaExhausted"),
            condition("Ready", "False", "StoreUnavailable", "gone"),
            ("Warning", "StoreUnavailable", "Ready is False: gone"),
            id="another reason",
        ),
        pytest.param(
            condition("Ready", "False", "StoreUnavailable", "for 3 s"),
            condition("Ready", "False", "StoreUnavailable", "for 9 s"),
            None,
            id="S13: only older",
        ),
        pytest.param(
            None,
            condition("ReplicaConflict", "True", "ForeignWriter", "kubectl also"),
            ("Warning", "ForeignWriter", "ReplicaConflict is True: kubectl also"),
            id="S21: a conflict is bad where it is true",
        ),
        pytest.param(
            condition("ReplicaConflict", "True", "ForeignWriter"), None, None, id="a conflict ends"
        ),
    ],
)
def test_conditions(
    before: dict[str, Any] | None,
    after: dict[str, Any] | None,
    told: tuple[str, str, str] | None,
) -> None:
    bench = Bench()
    statuses = [{"conditions": [each] if each else []} for each in (before, after)]
    bench.recorder.conditions(VIEW, *statuses)
    assert bench.news() == ([told] if told else [])


def test_notes_are_news_only_when_they_change() -> None:
    bench = Bench()
    for text in ("a", "a", "b", "b", "a"):
        bench.recorder.once(VIEW, "topic", "Note", text)
    bench.recorder.once(VIEW, "another topic", "Note", "a")
    bench.recorder.once(OTHER, "topic", "Note", "a")
    assert [message for _, _, message in bench.news()] == ["a", "b", "a", "a", "a"]


def test_forgetting_one_queue_leaves_the_others() -> None:
    bench = Bench()
    for view in (VIEW, OTHER):
        bench.recorder.once(view, "topic", "Note", view.key)
    bench.recorder.forget(VIEW.key)
    for view in (VIEW, OTHER):
        bench.recorder.once(view, "topic", "Note", view.key)
    assert [message for *_, message in bench.news()] == ["default/q", "default/other", "default/q"]


def test_what_cannot_be_posted_stops_nothing() -> None:
    bench = Bench()
    bench.cluster.failures["event"] = ApiUnavailable("503")
    bench.recorder.event(VIEW, "Lost", "x")
    bench.recorder.event(VIEW, "Lost", "y")
    assert bench.news() == []
    assert len(bench.cluster.asked("event")) == 2, "both were tried, once"
    bench.cluster.failures.clear()
    bench.recorder.event(VIEW, "Told", "z")
    assert bench.news() == [("Normal", "Told", "z")]


def test_a_cluster_that_takes_none_costs_bounded_memory() -> None:
    """The oldest go."""
    bench = Bench()
    for n in range(1200):
        bench.recorder.event(VIEW, "Because", str(n))
    assert [message for *_, message in bench.news()] == [str(n) for n in range(200, 1200)]
