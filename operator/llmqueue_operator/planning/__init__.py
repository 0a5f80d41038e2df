"""The planner: pure functions from a snapshot to a plan. See docs/architecture.md."""

from llmqueue_operator.planning.fields import remembered, store_plan_fields
from llmqueue_operator.planning.plan import plan
from llmqueue_operator.planning.reasons import ConditionType, Reason
from llmqueue_operator.planning.seeding import seed
from llmqueue_operator.planning.trouble import pauses_of, was_reset
from llmqueue_operator.planning.types import (
    BoundBy,
    Condition,
    GroupSnapshot,
    Memory,
    Plan,
    PodPhase,
    PodView,
    QueueInput,
    QueueMemory,
    QueuePlan,
    Remembered,
    ScalingSpec,
)

__all__ = [
    "BoundBy",
    "Condition",
    "ConditionType",
    "GroupSnapshot",
    "Memory",
    "Plan",
    "PodPhase",
    "PodView",
    "QueueInput",
    "QueueMemory",
    "QueuePlan",
    "Reason",
    "Remembered",
    "ScalingSpec",
    "pauses_of",
    "plan",
    "remembered",
    "seed",
    "store_plan_fields",
    "was_reset",
]
