"""Plans and sights → status, and whether it is worth a write."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmqueue.spec.status import LLMQueueStatus
from llmqueue.states import JobState
from llmqueue.store.snapshots import QueueSnapshot
from llmqueue_operator.planning import BoundBy, Condition, ConditionType, QueuePlan, Reason
from llmqueue_operator.status import Facts, status_of, worth_writing
from unit.planning.builders import seen

NOW = datetime(2026, 1, 1, 12, 0, 0, 500_000, UTC)
GOOD = tuple(
    Condition(kind, True, Reason.AS_EXPECTED, "")
    for kind in (ConditionType.STORE_AVAILABLE, ConditionType.WORKERS_AVAILABLE)
)
Status = dict[str, Any]


def later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def planned(*conditions: Condition, **fields: Any) -> QueuePlan:
    values: dict[str, Any] = {
        "queue": "default/q",
        "wish": 4,
        "target": 4,
        "replicas": 5,
        "mark": (),
        "unmark": (),
        "remove": (),
        "bound_by": BoundBy.BACKLOG,
        "reason": Reason.STEADY,
        "effective_rpm": 59.6,
        "eta_seconds": 12.4,
        "slot_seconds": 8.0126,
        "conditions": conditions or GOOD,
        "message": "because",
        "next_change_seconds": 30.0,
        "actual": 3,
        "draining": 1,
    }
    return QueuePlan(**(values | fields))


def facts(plan: QueuePlan | None = None, *conditions: Condition, **fields: Any) -> Facts:
    values: dict[str, Any] = {
        "generation": 2,
        "budget": "default/q",
        "plan": plan,
        "seen": seen(ready=7, leased=2, sent=3),
        "conditions": conditions,
    }
    return Facts(**(values | fields))


def bad(kind: str, reason: str = Reason.STORE_UNAVAILABLE, message: str = "why") -> Condition:
    return Condition(kind, False, reason, message)


def condition(status: Status, kind: str) -> Status:
    (found,) = [c for c in status["conditions"] if c["type"] == kind]
    return found


def test_a_whole_status() -> None:
    status = status_of(facts(planned()), {}, NOW)
    conditions = status.pop("conditions")
    assert status.pop("jobs") == {
        str(s): {"ready": 7, "leased": 2, "sent": 3}.get(s, 0) for s in JobState
    }
    assert status == {
        "observedGeneration": 2,
        "observedTime": "2026-01-01T12:00:00Z",
        "budget": "default/q",
        "desired": 4,
        "workers": 3,
        "draining": 1,
        "replicas": 5,
        "boundBy": "Backlog",
        "reason": "Steady",
        "message": "because",
        "nextChangeTime": "2026-01-01T12:00:30Z",
        "effectiveRequestsPerMinute": 60,
        "etaSeconds": 12,
        "slotMilliseconds": 8013,
        "inFlight": 5,
    }
    assert conditions[0] == {
        "type": "Ready",
        "status": "True",
        "observedGeneration": 2,
        "lastTransitionTime": "2026-01-01T12:00:00Z",
        "reason": "AsExpected",
        "message": "",
    }
    assert [c["type"] for c in conditions] == ["Ready", "StoreAvailable", "WorkersAvailable"]


CASES = [
    pytest.param(facts(planned()), id="planned"),
    pytest.param(facts(planned(eta_seconds=None, next_change_seconds=None)), id="unknown times"),
    pytest.param(facts(planned(), seen=None), id="store away"),
    pytest.param(facts(None, bad(ConditionType.READY, Reason.INVALID_SPEC), seen=None), id="none"),
]


@pytest.mark.parametrize("given", CASES)
def test_only_declared_fields_are_written(given: Facts) -> None:
    """The server would drop what the schema does not declare, and each tick write it again."""
    status = status_of(given, {}, NOW)
    declared = {field.alias for field in LLMQueueStatus.model_fields.values()}
    assert set(status) <= declared
    assert LLMQueueStatus.model_validate(status).desired == status.get("desired")


def test_what_is_not_known_now_is_kept() -> None:
    """S13: while the store is away its numbers stay, and so do the planner's in trouble."""
    before = status_of(facts(planned()), {}, NOW)
    away = status_of(facts(planned(), seen=None), before, later(60))
    assert away["jobs"] == before["jobs"]
    assert away["inFlight"] == 5
    refused = status_of(facts(None, bad(ConditionType.READY), seen=None), before, later(60))
    for name in ("desired", "workers", "draining", "replicas", "slotMilliseconds", "jobs"):
        assert refused[name] == before[name], name
    for name in ("boundBy", "reason", "etaSeconds", "nextChangeTime"):
        assert name not in refused, "it would be a lie"


# ---------------------------------------------------------------- Ready


@pytest.mark.parametrize(
    ("given", "ready", "reason"),
    [
        pytest.param(facts(planned()), True, Reason.AS_EXPECTED, id="fine"),
        pytest.param(
            facts(planned(target=0, replicas=0, actual=0)), True, Reason.AS_EXPECTED, id="idle at 0"
        ),
        pytest.param(
            facts(planned(bad(ConditionType.STORE_AVAILABLE))),
            False,
            Reason.STORE_UNAVAILABLE,
            id="S14: store away",
        ),
        pytest.param(
            facts(planned(bad(ConditionType.CREDENTIAL_USABLE, Reason.QUOTA_EXHAUSTED))),
            False,
            Reason.QUOTA_EXHAUSTED,
            id="S45: no quota",
        ),
        pytest.param(
            facts(planned(bad(ConditionType.WORKERS_AVAILABLE, Reason.WORKERS_FAILING))),
            False,
            Reason.WORKERS_FAILING,
            id="workers do not start",
        ),
        pytest.param(
            facts(planned(bad(ConditionType.PROVIDER_AVAILABLE, Reason.RATE_LIMITED))),
            True,
            Reason.AS_EXPECTED,
            id="S42: 429s only slow it down",
        ),
        pytest.param(
            facts(planned(bad(ConditionType.PROVIDER_AVAILABLE, Reason.BREAKER_OPEN))),
            False,
            Reason.BREAKER_OPEN,
            id="the breaker stops it",
        ),
        pytest.param(
            facts(planned(bad(ConditionType.SCALING_ACTIVE, Reason.SCALING_PAUSED))),
            True,
            Reason.AS_EXPECTED,
            id="frozen replicas still take jobs",
        ),
        pytest.param(
            facts(planned(), seen=seen(suspended=True)), False, Reason.SUSPENDED, id="suspended"
        ),
        pytest.param(
            facts(planned(), bad(ConditionType.READY, Reason.NAME_TAKEN)),
            False,
            Reason.NAME_TAKEN,
            id="the Deployment's name is taken",
        ),
        pytest.param(
            facts(None, bad(ConditionType.STORE_AVAILABLE, Reason.CONNECTION_UNUSABLE)),
            False,
            Reason.CONNECTION_UNUSABLE,
            id="nothing planned, told why",
        ),
        pytest.param(facts(None), False, Reason.STORE_UNAVAILABLE, id="nothing planned"),
        pytest.param(
            facts(
                planned(),
                Condition(ConditionType.BUDGET_CONFLICT, True, Reason.LIMITS_DIFFER, "x"),
                Condition(ConditionType.REPLICA_CONFLICT, True, Reason.FOREIGN_WRITER, "x"),
            ),
            True,
            Reason.AS_EXPECTED,
            id="S21: conflicts are told, jobs go on",
        ),
    ],
)
def test_ready(given: Facts, ready: bool, reason: str) -> None:
    """True while jobs are handed out, or would be."""
    status = status_of(given, {}, NOW)
    found = condition(status, "Ready")
    assert (found["status"], found["reason"]) == (str(ready), reason)


def test_a_type_is_there_once() -> None:
    """A condition list is a map by type for the server; what the plan does not know counts."""
    given = facts(
        planned(bad(ConditionType.STORE_AVAILABLE, Reason.STORE_UNAVAILABLE)),
        bad(ConditionType.STORE_AVAILABLE, Reason.CONNECTION_UNUSABLE),
    )
    found = condition(status_of(given, {}, NOW), "StoreAvailable")
    assert found["reason"] == Reason.CONNECTION_UNUSABLE


def test_the_time_of_a_transition() -> None:
    """It stands while the status does, also where reason and generation change."""
    first = status_of(facts(planned()), {}, NOW)
    second = status_of(facts(planned(), generation=3), first, later(60))
    assert condition(second, "Ready")["lastTransitionTime"] == "2026-01-01T12:00:00Z"
    assert condition(second, "Ready")["observedGeneration"] == 3
    third = status_of(facts(planned(bad(ConditionType.STORE_AVAILABLE))), second, later(120))
    assert condition(third, "Ready")["lastTransitionTime"] == "2026-01-01T12:02:00Z"
    other = bad(ConditionType.STORE_AVAILABLE, Reason.STORE_RESET)
    fourth = status_of(facts(planned(other)), third, later(180))
    assert condition(fourth, "Ready")["reason"] == Reason.STORE_RESET
    assert condition(fourth, "Ready")["lastTransitionTime"] == "2026-01-01T12:02:00Z"


def test_a_condition_that_is_no_longer_given_is_gone() -> None:
    conflict = Condition(ConditionType.REPLICA_CONFLICT, True, Reason.FOREIGN_WRITER, "x")
    before = status_of(facts(planned(), conflict), {}, NOW)
    after = status_of(facts(planned()), before, later(1))
    assert "ReplicaConflict" not in [c["type"] for c in after["conditions"]]
    assert worth_writing(after, before, later(1))


# ---------------------------------------------------------------- worth a write


def jobs(ready: int) -> QueueSnapshot:
    return seen(ready=ready)


@pytest.mark.parametrize(
    ("after", "seconds", "worth"),
    [
        pytest.param(facts(planned()), 3600, False, id="nothing changed, however long"),
        pytest.param(facts(planned(target=5)), 1, True, id="desired: at once"),
        pytest.param(facts(planned(replicas=6)), 1, True, id="replicas: at once"),
        pytest.param(facts(planned(bound_by=BoundBy.SHARE)), 1, True, id="bound by: at once"),
        pytest.param(facts(planned(), generation=3), 1, True, id="a new spec: at once"),
        pytest.param(facts(planned(), budget="default/~t"), 1, True, id="budget: at once"),
        pytest.param(
            facts(planned(bad(ConditionType.STORE_AVAILABLE))), 1, True, id="a condition: at once"
        ),
        pytest.param(facts(planned(actual=9)), 1, False, id="numbers: not yet"),
        pytest.param(facts(planned(actual=9)), 29, False, id="numbers: still not"),
        pytest.param(facts(planned(actual=9)), 31, True, id="numbers: after 30 s"),
        pytest.param(facts(planned(slot_seconds=8.5)), 31, False, id="by less than a tenth"),
        pytest.param(facts(planned(slot_seconds=9.0)), 31, True, id="by more than a tenth"),
        pytest.param(facts(planned(actual=0)), 31, True, id="to nothing"),
        pytest.param(facts(planned(), seen=jobs(0)), 31, True, id="jobs: to nothing"),
        pytest.param(facts(planned(eta_seconds=None)), 31, True, id="no ETA any more"),
        pytest.param(facts(planned(reason=Reason.IDLE)), 1, False, id="another reason: not yet"),
        pytest.param(facts(planned(reason=Reason.IDLE)), 31, True, id="another reason"),
        pytest.param(
            facts(planned(next_change_seconds=3)), 31, False, id="a countdown alone never"
        ),
    ],
)
def test_worth_writing(after: Facts, seconds: float, worth: bool) -> None:
    """No API write when nothing changes."""
    before = status_of(facts(planned()), {}, NOW)
    status = status_of(after, before, later(seconds))
    assert worth_writing(status, before, later(seconds)) is worth


def test_the_first_status_is_written() -> None:
    assert worth_writing(status_of(facts(planned()), {}, NOW), {}, NOW)


def test_from_nothing_to_one() -> None:
    before = status_of(facts(planned(), seen=jobs(0)), {}, NOW)
    after = status_of(facts(planned(), seen=jobs(1)), before, later(31))
    assert worth_writing(after, before, later(31))


@given(st.sampled_from([case.values[0] for case in CASES]), st.integers(0, 10**6))
def test_what_was_written_is_not_written_again(given: Any, seconds: int) -> None:
    before = status_of(given, {}, NOW)
    again = status_of(given, before, later(seconds))
    assert not worth_writing(again, before, later(seconds))
