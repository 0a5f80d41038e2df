"""What a scrape shows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import generate_latest

from llmqueue import __version__
from llmqueue.errors import StoreMisconfigured, StoreRefused, StoreUnavailable
from llmqueue.states import JobState, Severity
from llmqueue.store.meters import Distribution, Meters
from llmqueue.store.snapshots import LimitView
from llmqueue_operator.errors import UnusableConnection
from llmqueue_operator.exporter import registry
from llmqueue_operator.metrics import Metrics
from llmqueue_operator.planning import BoundBy, QueuePlan
from support import workerbench
from support.clusterobjects import member
from unit.planning.builders import beat, pause, seen, store

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
    shown = text(metrics)
    assert metric(shown, "llmqueue_operator_leading") == 0
    for result in ("succeeded", "failed", "refused"):  # else the first would be no increase
        assert metric(shown, "llmqueue_operator_reconciles_total", result=result) == 0
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


# ---------------------------------------------------------------- what the store says of a queue


METERS = Meters(
    calls={("gpt", "SUCCESS"): 7, ("gpt", "RATE"): 2},
    tokens={("gpt", "input"): 90, ("gpt", "reasoning"): 3},
    cost_nano_usd={"gpt": 1_500_000_000},
    unpriced={"other": 4},
    retries={"RATE": 2},
    ended={JobState.SUCCEEDED: 6, JobState.DEAD: 1},
    dead={Severity.WARNING: 0, Severity.ERROR: 1, Severity.CRITICAL: 0},
    call_seconds=Distribution((1.0, 5.0), (3, 2, 1), 21.5),
    queue_wait_seconds=Distribution((1.0, 5.0), (0, 0, 0), 0.0),
    enqueued=11,
    granted=10,
    settled=9,
    reviews=8,
    reclaims=5,
    fenced=4,
    possible_duplicates=3,
)


def counted(metrics: Metrics, meters: Meters | None) -> None:
    metrics.planned(member(), PLAN, store([replace(seen(), meters=meters)]))


@pytest.mark.parametrize(
    ("name", "labels", "value"),
    [
        ("calls_total", {"model": "gpt", "outcome": "RATE"}, 2),
        ("tokens_total", {"model": "gpt", "type": "reasoning"}, 3),
        ("cost_usd_total", {"model": "gpt"}, 1.5),
        ("unpriced_calls_total", {"model": "other"}, 4),
        ("retries_total", {"outcome": "RATE"}, 2),
        ("jobs_ended_total", {"state": "succeeded"}, 6),
        ("dead_letters_total", {"severity": "ERROR"}, 1),
        ("dead_letters_total", {"severity": "CRITICAL"}, 0),
        ("jobs_enqueued_total", {}, 11),
        ("jobs_granted_total", {}, 10),
        ("jobs_settled_total", {}, 9),
        ("reviews_total", {}, 8),
        ("reclaims_total", {}, 5),
        ("fenced_settles_total", {}, 4),
        ("possible_duplicates_total", {}, 3),
        ("call_duration_seconds_bucket", {"le": "1.0"}, 3),
        ("call_duration_seconds_bucket", {"le": "5.0"}, 5),
        ("call_duration_seconds_bucket", {"le": "+Inf"}, 6),
        ("call_duration_seconds_count", {}, 6),
        ("call_duration_seconds_sum", {}, 21.5),
        ("queue_wait_seconds_count", {}, 0),
    ],
)
def test_what_was_counted(name: str, labels: dict[str, str], value: float) -> None:
    metrics = Metrics()
    counted(metrics, METERS)
    assert metric(text(metrics), f"llmqueue_{name}", **QUEUE, **labels) == value


def test_what_was_counted_stays_while_the_store_is_away() -> None:
    """And between two looks at it; of a queue that is gone nothing stays."""
    metrics = Metrics()
    counted(metrics, METERS)
    counted(metrics, None)
    assert metric(text(metrics), "llmqueue_reviews_total", **QUEUE) == 8
    metrics.planned(member(), PLAN, None)
    assert metric(text(metrics), "llmqueue_reviews_total", **QUEUE) == 8
    metrics.forget("default/q")
    counted(metrics, None)
    assert "llmqueue_reviews_total{" not in text(metrics)


def test_what_a_failover_lost_is_no_new_beginning() -> None:
    """Prometheus would take the whole total for what was counted since."""
    metrics, lost, more = Metrics(), replace(METERS, settled=7, calls={}), replace(METERS)
    lost = replace(
        lost,
        cost_nano_usd={"gpt": 1_400_000_000},
        call_seconds=Distribution((1.0, 5.0), (3, 1, 1), 20.0),
    )
    more = replace(lost, settled=12, cost_nano_usd={"gpt": 1_700_000_000}, calls={("m", "RATE"): 1})
    for found, settled, cost, total in (
        (METERS, 9, 1.5, 21.5),
        (lost, 9, 1.5, 21.5),
        (None, 9, 1.5, 21.5),
        (more, 14, 1.8, 21.5),
    ):
        counted(metrics, found)
        shown = text(metrics)
        assert metric(shown, "llmqueue_jobs_settled_total", **QUEUE) == settled
        assert metric(shown, "llmqueue_cost_usd_total", **QUEUE, model="gpt") == cost
        assert metric(shown, "llmqueue_call_duration_seconds_sum", **QUEUE) == total
        assert metric(shown, "llmqueue_call_duration_seconds_count", **QUEUE) == 6
        calls = {"model": "gpt", "outcome": "SUCCESS"}
        assert metric(shown, "llmqueue_calls_total", **QUEUE, **calls) == 7
    assert metric(shown, "llmqueue_calls_total", **QUEUE, model="m", outcome="RATE") == 1


@pytest.mark.parametrize("how", ["another store", "another leader"])
def test_a_new_beginning_is_one(how: str) -> None:
    metrics, few = Metrics(), replace(METERS, settled=1)
    counted(metrics, METERS)
    if how == "another leader":
        metrics.forget()
    epoch = "e2" if how == "another store" else "e1"
    metrics.planned(member(), PLAN, store([replace(seen(), meters=few)], epoch=epoch))
    assert metric(text(metrics), "llmqueue_jobs_settled_total", **QUEUE) == 1


ABSENT = (
    "eta_seconds",
    "stored_bytes_limit",
    "review_oldest_seconds",
    "last_settle_seconds",
    "oldest_heartbeat_seconds",
    "estimate_error_ratio",
)


def test_what_is_not_known_is_absent() -> None:
    metrics = Metrics()
    metrics.planned(member(), PLAN, store())
    shown = text(metrics)
    assert [name for name in ABSENT if f"llmqueue_{name}{{" in shown] == []


def test_numbers_of_a_queue() -> None:
    now = [100.0]
    metrics = Metrics(clock=lambda: now[0])
    found = replace(
        seen(),
        stored_bytes=77,
        review_oldest_seconds=0.0,
        last_settle_seconds=0.0,
        estimate_ratio=1.25,
    )
    workers = [
        replace(beat("a", age=2.0), queue="default/q"),
        replace(beat("b", age=40.0), queue="default/q"),
        replace(beat("c", age=99.0), queue="default/other"),
    ]
    snapshot = store([found], workers, blocked_seconds=3.5, rate_factor=0.25, breaker="half-open")
    bounded = member(queue={"maxJobs": 500, "maxBytes": 1000})
    metrics.planned(bounded, replace(PLAN, eta_seconds=0.0), snapshot, [pause("AUTH")])
    now[0] = 104.0
    shown = text(metrics)
    for name, value in (
        ("eta_seconds", 0),
        ("stored_bytes", 77),
        ("stored_bytes_limit", 1000),
        ("jobs_limit", 500),
        ("review_oldest_seconds", 0),
        ("last_settle_seconds", 0),
        ("estimate_error_ratio", 1.25),
        ("oldest_heartbeat_seconds", 40),
        ("blocked_seconds", 3.5),
        ("rate_factor", 0.25),
        ("planned_age_seconds", 4),
    ):
        assert metric(shown, f"llmqueue_{name}", **QUEUE) == value, name
    for state, value in (("closed", 0), ("open", 0), ("half-open", 1)):
        assert metric(shown, "llmqueue_breaker", **QUEUE, state=state) == value
    for kind, value in (("QUOTA", 0), ("AUTH", 1), ("FORBIDDEN", 0)):
        assert metric(shown, "llmqueue_credential_pauses", **QUEUE, kind=kind) == value


# ---------------------------------------------------------------- Redis connections


AWAY, WRONG, NO_ENTRY = StoreUnavailable("x"), StoreMisconfigured("x"), StoreRefused("x")


def problems(metrics: Metrics, name: str = "default") -> tuple[float, set[str]]:
    """Whether it is up, and what is wrong."""
    shown = text(metrics)
    reasons = ("unreachable", "misconfigured", "refused")
    found = {r: metric(shown, "llmqueue_store_problem", connection=name, reason=r) for r in reasons}
    return metric(shown, "llmqueue_store_up", connection=name), {r for r in found if found[r]}


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (None, set()),
        (AWAY, {"unreachable"}),
        (WRONG, {"misconfigured"}),
        (UnusableConnection("x"), {"misconfigured"}),
        (NO_ENTRY, {"refused"}),
    ],
)
@pytest.mark.parametrize("how", ["looked_at_store", "checked_store"])
def test_what_is_wrong_with_a_store(how: str, error: Any, problem: set[str]) -> None:
    metrics = Metrics()
    getattr(metrics, how)("default", error)
    assert problems(metrics) == (float(not problem), problem)


def test_who_answers_can_be_reached() -> None:
    """A good look ends an old check's silence, what looks found only a good look: a check asks one
    server of perhaps many. A wrong setting is ended by a good check only."""
    now = [0.0]
    metrics = Metrics(clock=lambda: now[0])
    metrics.checked_store("default", AWAY)
    metrics.looked_at_store("default", None)
    assert problems(metrics) == (1, set())
    metrics.looked_at_store("default", AWAY)
    metrics.checked_store("default", None)
    assert problems(metrics) == (0, {"unreachable"})
    metrics.looked_at_store("default", None)
    assert problems(metrics) == (1, set())
    metrics.checked_store("default", WRONG)
    metrics.looked_at_store("default", None)
    assert problems(metrics) == (0, {"misconfigured"})
    metrics.checked_store("default", None)
    metrics.looked_at_store("default", NO_ENTRY)
    metrics.checked_store("default", None)
    assert problems(metrics) == (0, {"refused"}), "a budget's look needs more rights"
    now[0] += 61
    metrics.checked_store("default", None)
    assert problems(metrics) == (1, set()), "nobody looks any more"


def test_warnings_and_connections_that_are_gone() -> None:
    metrics = Metrics()
    metrics.checked_store("default", None, warnings=2)
    metrics.checked_store("default", AWAY)
    metrics.checked_store("other", None, warnings=0)
    assert metric(text(metrics), "llmqueue_store_warnings", connection="default") == 2
    metrics.keep_stores(["other"])
    assert 'connection="default"' not in text(metrics)
    assert problems(metrics, "other") == (1, set())
    metrics.forget()
    assert "connection=" not in text(metrics), "a replica that leads no more"


def test_the_version() -> None:
    assert metric(text(Metrics()), "llmqueue_operator_info", version=__version__) == 1
