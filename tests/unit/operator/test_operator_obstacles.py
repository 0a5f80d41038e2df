"""Why no worker comes up."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from llmqueue_operator.obstacles import PATIENCE_SECONDS, obstacle
from llmqueue_operator.planning import BoundBy, Condition, ConditionType, QueuePlan, Reason
from llmqueue_operator.views import DeploymentView, PodState, deployment_view, pod_state
from support.clusterobjects import EPOCH_SECONDS, deployment, pod

PLAN = QueuePlan(
    queue="default/q",
    wish=1,
    target=1,
    replicas=1,
    mark=(),
    unmark=(),
    remove=(),
    bound_by=BoundBy.BACKLOG,
    reason=Reason.STEADY,
    effective_rpm=60,
    eta_seconds=None,
    slot_seconds=10,
)
LATE = EPOCH_SECONDS + PATIENCE_SECONDS + 1
REFUSED = [
    {
        "type": "ReplicaFailure",
        "status": "True",
        "message": 'pods "q-worker-" is forbidden: exceeded quota',
    }
]


def state(**fields: Any) -> PodState:
    found = pod_state(pod(**fields))
    assert found is not None
    return found


def pending(**fields: Any) -> PodState:
    return state(**{"phase": "Pending", "started": None, "ready": None, **fields})


def told(
    *pods: PodState,
    found: DeploymentView | None = None,
    now: float = LATE,
    plan: QueuePlan = PLAN,
) -> tuple[str, str] | None:
    condition = obstacle(plan, found, pods, now)
    if condition is None:
        return None
    assert (condition.type, condition.status) == (ConditionType.WORKERS_AVAILABLE, False)
    return condition.reason, condition.message


def test_a_pod_that_waits_for_long() -> None:
    reason, message = told(pending(waiting="ContainerCreating")) or ("", "")
    assert reason == Reason.WORKERS_PENDING
    assert "pod-a does not start: ContainerCreating" in message
    assert "kubectl describe pod pod-a" in message


def test_a_pod_that_no_node_takes() -> None:
    unscheduled = {
        "type": "PodScheduled",
        "status": "False",
        "message": "0/3 nodes are available: 3 Insufficient cpu.",
    }
    _, message = told(pending(conditions=[unscheduled])) or ("", "")
    assert "3 Insufficient cpu" in message


def test_pods_that_are_refused() -> None:
    view = deployment_view(deployment(conditions=REFUSED))
    reason, message = told(found=view) or ("", "")
    assert reason == Reason.WORKERS_FAILING
    assert "exceeded quota" in message


@pytest.mark.parametrize(
    ("pods", "changes", "now"),
    [
        pytest.param([pending()], {}, LATE - 2, id="it may take a minute"),
        pytest.param([state()], {}, LATE, id="it runs"),
        pytest.param([pending()], {"actual": 1}, LATE, id="another one works"),
        pytest.param([], {}, LATE, id="no pod"),
        pytest.param(
            [pending()],
            {
                "conditions": (
                    Condition(
                        ConditionType.WORKERS_AVAILABLE, False, Reason.WORKERS_FAILING, "why"
                    ),
                )
            },
            LATE,
            id="the plan knows better",
        ),
    ],
)
def test_nothing_to_tell(pods: list[PodState], changes: dict[str, Any], now: float) -> None:
    view = deployment_view(deployment())
    assert told(*pods, found=view, now=now, plan=dataclasses.replace(PLAN, **changes)) is None
