"""Why no worker comes up, as far as pods and Deployment say. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from llmqueue_operator.planning import Condition, ConditionType, PodPhase, QueuePlan, Reason
from llmqueue_operator.views import DeploymentView, PodState

PATIENCE_SECONDS = 60.0
"""A pod may take so long to start without anybody being told."""


def obstacle(
    plan: QueuePlan, found: DeploymentView | None, pods: Iterable[PodState], now: float
) -> Condition | None:
    """What the plan does not know of; None while a worker takes jobs. `now` in Unix seconds."""
    if plan.actual or any(
        c.type == ConditionType.WORKERS_AVAILABLE and not c.status for c in plan.conditions
    ):
        return None
    if found is not None and found.failure:
        return _condition(Reason.WORKERS_FAILING, f"pods are refused: {found.failure}")
    for pod in pods:
        if pod.phase is PodPhase.PENDING and now - pod.created_at > PATIENCE_SECONDS:
            because = f": {pod.waiting}" if pod.waiting else ""
            return _condition(
                Reason.WORKERS_PENDING,
                f"pod {pod.name} does not start{because}. A Secret or key that is missing is told"
                f" by: kubectl describe pod {pod.name}",
            )
    return None


def _condition(reason: Reason, message: str) -> Condition:
    return Condition(ConditionType.WORKERS_AVAILABLE, False, reason, message)
