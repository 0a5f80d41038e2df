"""LLMQueues on one budget → the one configuration that they share. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from llmqueue.config import BudgetConfig, QueueConfig
from llmqueue.spec import LLMQueue, budget_config, differing_limits, queue_config
from llmqueue_operator.planning import Condition, ConditionType, Reason, ScalingSpec
from llmqueue_operator.planning.spec import scaling_spec
from llmqueue_operator.views import QueueView


@dataclass(frozen=True, slots=True)
class Member:
    """An LLMQueue that takes part."""

    view: QueueView
    resource: LLMQueue
    config: QueueConfig
    scaling: ScalingSpec

    @property
    def key(self) -> str:
        return self.view.key


@dataclass(frozen=True, slots=True)
class Group:
    """The LLMQueues of a budget that take part; `conflicts` is what they disagree on."""

    budget: BudgetConfig
    connection: str
    members: tuple[Member, ...]
    conflicts: tuple[Condition, ...]

    @property
    def name(self) -> str:
        return self.budget.budget


@dataclass(frozen=True, slots=True)
class Assembly:
    """`group` None: nobody takes part. `refused`: who cannot, with the condition that says why."""

    group: Group | None
    refused: Mapping[str, Condition]


def assemble(views: Sequence[QueueView]) -> Assembly:
    """`views` oldest first: where members exclude each other, the oldest counts."""
    refused: dict[str, Condition] = {}
    members: list[Member] = []
    for view in views:
        problem = _problem(view, members)
        if problem is not None or view.resource is None:
            refused[view.key] = problem or _condition(ConditionType.READY, Reason.INVALID_SPEC, "")
            continue
        resource = view.resource
        members.append(Member(view, resource, queue_config(resource), scaling_spec(resource)))
    if not members:
        return Assembly(None, refused)
    resources = [member.resource for member in members]
    group = Group(
        budget=budget_config(resources),
        connection=resources[0].spec.redis.connection,
        members=tuple(members),
        conflicts=_conflicts(members),
    )
    return Assembly(group, refused)


def _problem(view: QueueView, members: Sequence[Member]) -> Condition | None:
    if view.resource is None:
        return _condition(ConditionType.READY, Reason.INVALID_SPEC, view.problem)
    if not members:
        return None
    first, spec = members[0], view.resource.spec
    for field, mine, theirs in (
        ("provider.type", spec.provider.type, first.resource.spec.provider.type),
        ("redis.connection", spec.redis.connection, first.resource.spec.redis.connection),
    ):
        if mine != theirs:
            message = (
                f"spec.{field} is {mine}, but {first.key} on the same shared budget has {theirs}:"
                " give this LLMQueue a budget of its own"
            )
            return _condition(ConditionType.READY, Reason.MEMBERS_DIFFER, message)
    return None


def _conflicts(members: Sequence[Member]) -> tuple[Condition, ...]:
    """Limits that differ: the lowest counts, and everybody is told."""
    differing = differing_limits([member.resource for member in members])
    if not differing:
        return ()
    fields = ", ".join(differing)
    message = f"members of the shared budget declare different limits ({fields}); the lowest counts"
    if "dayTimeZone" in differing:
        message += ", and for those with a limit a day is any 24 hours"
    return (Condition(ConditionType.BUDGET_CONFLICT, True, Reason.LIMITS_DIFFER, message),)


def _condition(kind: ConditionType, reason: Reason, message: str) -> Condition:
    return Condition(kind, False, reason, message)
