"""What a scrape shows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from prometheus_client import generate_latest

from llmqueue.store.snapshots import LimitView
from llmqueue_operator.exporter import registry
from llmqueue_operator.metrics import Metrics
from llmqueue_operator.planning import BoundBy, QueuePlan
from support import workerbench
from support.clusterobjects import member
from unit.planning.builders import seen, store

PLAN = QueuePlan(
    queue="default/q",
    wish=5,
    target=4,
    replicas=6,
    mark=(),
    unmark=(),
    remove=(),
    bound_by=BoundBy.REQUESTS_PER_MINUTE,
    reason="Steady",
    effective_rpm=59.5,
    eta_seconds=None,
    slot_seconds=8.25,
    actual=3,
    draining=2,
)
QUEUE = {"namespace": "default", "queue": "q"}


def metric(shown: str, name: str, **labels: str) -> float:
    """Labels are written in alphabetical order."""
    return workerbench.metric(shown, name, **dict(sorted(labels.items())))


def text(metrics: Metrics) -> str:
    return generate_latest(registry(metrics)).decode()


def test_a_queue() -> None:
    metrics = Metrics()
    snapshot = store(
        [
            seen("default/other", ready=9),
            replace(
                seen(ready=7, sent=2),
                oldest_ready_seconds=61.5,
                held_back=4,
                tenants_waiting=3,
                tenants_parked=1,
                ready_by_band=(0, 5, 2, 0),
                in_flight_by_band=(2, 0, 0, 0),
            ),
        ]
    )
    metrics.planned(member(), PLAN, snapshot)
    shown = text(metrics)
    for name, value in (
        ("workers_desired", 4),
        ("workers_actual", 3),
        ("workers_draining", 2),
        ("replicas", 6),
        ("effective_requests_per_minute", 59.5),
        ("slot_seconds", 8.25),
        ("oldest_ready_seconds", 61.5),
        ("jobs_held_back", 4),
        ("tenants_waiting", 3),
        ("tenants_parked", 1),
    ):
        assert metric(shown, f"llmqueue_{name}", **QUEUE) == value, name
    assert metric(shown, "llmqueue_jobs", **QUEUE, state="ready") == 7
    assert metric(shown, "llmqueue_jobs", **QUEUE, state="sent") == 2
    assert metric(shown, "llmqueue_jobs_ready", **QUEUE, band="high") == 5
    assert metric(shown, "llmqueue_jobs_in_flight", **QUEUE, band="urgent") == 2
    assert metric(shown, "llmqueue_bound_by", **QUEUE, limit="RequestsPerMinute") == 1


def status(**conditions: tuple[str, str]) -> dict[str, object]:
    """Type → status and reason."""
    return {
        "desired": 4,
        "conditions": [
            {"type": kind, "status": value, "reason": reason, "message": "x"}
            for kind, (value, reason) in conditions.items()
        ],
    }


def test_conditions_are_those_of_the_status() -> None:
    """Also of a queue that has no plan, and those that no plan knows of."""
    metrics = Metrics()
    metrics.reported(
        "default/q",
        status(Ready=("False", "InvalidSpec"), ReplicaConflict=("True", "AnotherScaler")),
    )
    shown = text(metrics)
    for kind, reason, value in (
        ("Ready", "InvalidSpec", 0),
        ("ReplicaConflict", "AnotherScaler", 1),
    ):
        labels = {**QUEUE, "type": kind, "reason": reason}
        assert metric(shown, "llmqueue_condition", **labels) == value, kind
    metrics.reported("default/q", status(Ready=("True", "AsExpected")))
    shown = text(metrics)
    assert shown.count("llmqueue_condition{") == 1, "the last report counts"
    metrics.reported("default/q", {})
    assert "llmqueue_condition{" not in text(metrics)


def test_a_queue_that_cannot_take_part_any_more() -> None:
    """Its last plan is no fact any more; why it has none is."""
    metrics = Metrics()
    metrics.planned(member(), PLAN, None)
    metrics.reported("default/q", status(Ready=("False", "InvalidSpec")))
    metrics.unplan("default/q")
    metrics.unplan("default/never")
    shown = text(metrics)
    assert "llmqueue_workers_desired{" not in shown
    assert "llmqueue_condition{" in shown


@pytest.mark.parametrize("snapshot", [None, store([seen("default/other")])], ids=["away", "new"])
def test_a_store_that_does_not_show_the_queue_gives_no_numbers(snapshot: object) -> None:
    """S38: never a silent zero."""
    metrics = Metrics()
    metrics.planned(member(), PLAN, snapshot)  # type: ignore[arg-type]
    shown = text(metrics)
    assert "llmqueue_jobs{" not in shown
    assert "llmqueue_oldest_ready_seconds{" not in shown
    assert metric(shown, "llmqueue_workers_desired", **QUEUE) == 4


def test_a_queue_that_is_gone_and_a_replica_that_leads_no_more() -> None:
    metrics = Metrics()
    for name in ("q", "b", "c"):
        metrics.planned(member(name), PLAN, None)
        metrics.reported(f"default/{name}", status(Ready=("True", "AsExpected")))
    metrics.forget("default/b")
    metrics.forget("default/never")
    shown = text(metrics)
    assert 'queue="b"' not in shown
    assert 'queue="c"' in shown
    metrics.forget()
    assert "queue=" not in text(metrics)


def test_the_last_plan_counts() -> None:
    metrics = Metrics()
    metrics.planned(member(), PLAN, None)
    metrics.planned(member(), replace(PLAN, target=9, bound_by=BoundBy.SHARE), None)
    shown = text(metrics)
    assert metric(shown, "llmqueue_workers_desired", **QUEUE) == 9
    assert shown.count("llmqueue_bound_by{") == 1


def test_the_process() -> None:
    metrics = Metrics()
    assert metric(text(metrics), "llmqueue_operator_leading") == 0
    metrics.leading = True
    metrics.reconciled("succeeded", 0.004)
    metrics.reconciled("succeeded", 0.005)
    metrics.reconciled("failed", 0.3)
    metrics.reconciled("refused", 99.0)
    shown = text(metrics)
    assert metric(shown, "llmqueue_operator_leading") == 1
    assert metric(shown, "llmqueue_operator_reconciles_total", result="succeeded") == 2
    assert metric(shown, "llmqueue_operator_reconciles_total", result="refused") == 1
    duration = "llmqueue_operator_reconcile_duration_seconds"
    assert metric(shown, f"{duration}_bucket", le="0.005") == 2, "a bound belongs to its bucket"
    assert metric(shown, f"{duration}_bucket", le="0.25") == 2
    assert metric(shown, f"{duration}_bucket", le="0.5") == 3
    assert metric(shown, f"{duration}_bucket", le="30.0") == 3
    assert metric(shown, f"{duration}_bucket", le="+Inf") == 4
    assert metric(shown, f"{duration}_sum") == pytest.approx(99.309)
    assert "process_resident_memory_bytes" in shown


def test_limits_as_declared_and_as_the_provider_taught() -> None:
    metrics = Metrics()
    limit = LimitView("requests/60", declared=600, effective=300, used=120, frees_seconds=1.0)
    metrics.planned(member(), PLAN, store([seen()], limits=(limit,)))
    shown = text(metrics)
    for kind, value in (("declared", 600), ("effective", 300), ("used", 120)):
        labels = {**QUEUE, "limit": "requests/60", "kind": kind}
        assert metric(shown, "llmqueue_limit", **labels) == value


def test_what_is_counted_here_begins_at_0() -> None:
    """An alert asks for an increase; a queue that is not planned, and a follower, show none."""
    metrics = Metrics()
    metrics.planned(member(), PLAN, None)
    names = ("llmqueue_unplanned_removals_total", "llmqueue_store_resets_total")
    for name in names:
        assert metric(text(metrics), name, **QUEUE) == 0
    metrics.unplanned["default/q"] += 2
    metrics.resets["default/q"] += 3
    assert [metric(text(metrics), name, **QUEUE) for name in names] == [2, 3]
    metrics.forget()
    assert "queue=" not in text(metrics)
    metrics.planned(member(), PLAN, None)
    assert [metric(text(metrics), name, **QUEUE) for name in names] == [2, 3], "a term later"
    metrics.forget("default/q")
    metrics.planned(member(), PLAN, None)
    assert [metric(text(metrics), name, **QUEUE) for name in names] == [0, 0], "a namesake"
