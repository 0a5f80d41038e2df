"""A plan as the store keeps it in `plan:<queue>` for command line and gateway."""

from __future__ import annotations

from collections.abc import Mapping

from llmqueue_operator.planning.types import QueuePlan, Remembered


def store_plan_fields(plan: QueuePlan) -> dict[str, str | float | int]:
    """Flat fields of a plan; a number that is not known is the empty string."""
    return {
        "wish": plan.wish,
        "desired": plan.target,
        "actual": plan.actual,
        "replicas": plan.replicas,
        "draining": plan.draining,
        "bound_by": str(plan.bound_by),
        "reason": str(plan.reason),
        "message": plan.message,
        "effective_rpm": round(plan.effective_rpm, 3),
        "eta_seconds": _number(plan.eta_seconds),
        "next_change_seconds": _number(plan.next_change_seconds),
        "slot_seconds": round(plan.slot_seconds, 3),
    }


def remembered(fields: Mapping[str, str]) -> Remembered:
    """What a plan in the store says to a planner that starts anew: how long calls take.

    How many workers there shall be is the runner's to say.
    """
    slot_seconds = fields.get("slot_seconds")
    return Remembered(slot_seconds=float(slot_seconds) if slot_seconds else None)


def _number(value: float | None) -> str | float:
    return "" if value is None else round(value, 1)
