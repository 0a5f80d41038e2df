"""A plan and what was seen → the status of an LLMQueue, and whether it is worth a write. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from llmqueue.documents import object_at, objects_at
from llmqueue.states import JobState
from llmqueue.store.snapshots import QueueSnapshot
from llmqueue_operator.planning import Condition, ConditionType, QueuePlan, Reason

NUMBERS_SECONDS = 30.0
"""Numbers alone are written at most so often."""
NOTABLE = 0.1
"""A change of a number by less than this share is not worth a write."""

_NOT_READY = frozenset(
    {
        ConditionType.STORE_AVAILABLE,
        ConditionType.CREDENTIAL_USABLE,
        ConditionType.WORKERS_AVAILABLE,
    }
)
_AT_ONCE = ("observedGeneration", "budget", "desired", "replicas", "boundBy")
_NUMBERS = (
    "workers",
    "draining",
    "effectiveRequestsPerMinute",
    "etaSeconds",
    "slotMilliseconds",
    "inFlight",
)

Status = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Facts:
    """What one queue's status is made of. `plan` None: nothing could be planned, conditions say
    why."""

    generation: int
    budget: str
    plan: QueuePlan | None
    seen: QueueSnapshot | None
    conditions: tuple[Condition, ...]
    """What the plan does not know; of a type that it has too, these count."""


def status_of(facts: Facts, before: Mapping[str, Any], now: datetime) -> Status:
    """The whole status. `before` is the present one: transition times are kept, and so are numbers
    that are not known now. `now` in UTC."""
    status: Status = {
        **{name: before[name] for name in ("jobs", "inFlight") if name in before},
        "observedGeneration": facts.generation,
        "observedTime": _text(now),
        "budget": facts.budget,
    }
    plan = facts.plan
    if plan is None:
        kept = ("desired", "workers", "draining", "replicas", "slotMilliseconds")
        status |= {name: before[name] for name in kept if name in before}
    else:
        status |= _planned(plan, now)
    if facts.seen is not None:
        states = facts.seen.states
        status["inFlight"] = states.get(JobState.LEASED, 0) + states.get(JobState.SENT, 0)
        status["jobs"] = {str(state): states.get(state, 0) for state in JobState}
    made = [_ready(facts), *facts.conditions, *(plan.conditions if plan else ())]
    status["conditions"] = _conditions(made, before, facts.generation, now)
    return status


def _planned(plan: QueuePlan, now: datetime) -> Status:
    status: Status = {
        "desired": plan.target,
        "workers": plan.actual,
        "draining": plan.draining,
        "replicas": plan.replicas,
        "boundBy": str(plan.bound_by),
        "reason": str(plan.reason),
        "message": plan.message,
        "effectiveRequestsPerMinute": round(plan.effective_rpm),
        "slotMilliseconds": round(plan.slot_seconds * 1000),
    }
    if plan.eta_seconds is not None:
        status["etaSeconds"] = round(plan.eta_seconds)
    if plan.next_change_seconds is not None:
        status["nextChangeTime"] = _text(now + timedelta(seconds=plan.next_change_seconds))
    return status


def _ready(facts: Facts) -> Condition:
    """True while jobs are handed out, or would be."""
    for condition in facts.conditions:
        if condition.type == ConditionType.READY:
            return condition
    plan = facts.plan
    if plan is None:
        why = next((c for c in facts.conditions if not c.status), None)
        reason = why.reason if why else str(Reason.STORE_UNAVAILABLE)
        return Condition(ConditionType.READY, False, reason, why.message if why else "")
    for condition in (*facts.conditions, *plan.conditions):
        if not condition.status and _stops(condition):
            return Condition(ConditionType.READY, False, condition.reason, condition.message)
    if facts.seen is not None and facts.seen.suspended:
        message = "the queue is suspended: nothing is handed out"
        return Condition(ConditionType.READY, False, Reason.SUSPENDED, message)
    return Condition(ConditionType.READY, True, Reason.AS_EXPECTED, "")


def _stops(condition: Condition) -> bool:
    """Rate limits slow a queue down, they do not stop it."""
    return condition.type in _NOT_READY or condition.reason == Reason.BREAKER_OPEN


def _conditions(
    made: Sequence[Condition], before: Mapping[str, Any], generation: int, now: datetime
) -> list[Status]:
    known = {c["type"]: c for c in objects_at(before, "conditions")}
    found: dict[str, Status] = {}
    for condition in made:
        kind, status = str(condition.type), "True" if condition.status else "False"
        if kind in found:
            continue
        was = known.get(kind)
        same = was is not None and was["status"] == status
        found[kind] = {
            "type": kind,
            "status": status,
            "observedGeneration": generation,
            "lastTransitionTime": was["lastTransitionTime"] if was and same else _text(now),
            "reason": str(condition.reason),
            "message": condition.message,
        }
    return list(found.values())


def worth_writing(status: Status, before: Mapping[str, Any], now: datetime) -> bool:
    """Decisions and conditions at once; words seldom, and numbers only where they moved."""
    if any(status.get(name) != before.get(name) for name in _AT_ONCE):
        return True
    if _verdicts(status) != _verdicts(before):
        return True
    written = before.get("observedTime")
    if written and now - datetime.fromisoformat(written) < timedelta(seconds=NUMBERS_SECONDS):
        return False
    if status.get("reason") != before.get("reason") or _messages(status) != _messages(before):
        return True
    jobs, old_jobs = object_at(status, "jobs"), object_at(before, "jobs")
    return any(_moved(status.get(name), before.get(name)) for name in _NUMBERS) or any(
        _moved(jobs.get(name), old_jobs.get(name)) for name in jobs.keys() | old_jobs.keys()
    )


def _verdicts(status: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    return sorted((c["type"], c["status"], c["reason"]) for c in objects_at(status, "conditions"))


def _messages(status: Mapping[str, Any]) -> list[tuple[str, str]]:
    return sorted((c["type"], c["message"]) for c in objects_at(status, "conditions"))


def _moved(new: int | None, old: int | None) -> bool:
    """By more than a tenth, or from or to nothing."""
    if new is None or old is None or not new or not old:
        return bool(new) != bool(old)
    return abs(new - old) > NOTABLE * abs(old)


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
