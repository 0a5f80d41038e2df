"""The status conditions of a plan."""

from __future__ import annotations

from collections.abc import Sequence

from llmqueue_operator.planning.reasons import ConditionType, Reason
from llmqueue_operator.planning.trouble import Hold, Restraint
from llmqueue_operator.planning.types import Condition, ScalingSpec


def held_conditions(hold: Hold) -> tuple[Condition, ...]:
    """While the store can't be planned on; nothing is known of provider and workers."""
    return (
        Condition(ConditionType.STORE_AVAILABLE, False, hold.reason, hold.message),
        Condition(ConditionType.SCALING_ACTIVE, False, hold.reason, "replicas are held"),
    )


def conditions(scaling: ScalingSpec, restraints: Sequence[Restraint]) -> tuple[Condition, ...]:
    """All conditions, in a fixed order; of several troubles of a kind the gravest."""
    found = {restraint.condition: restraint for restraint in reversed(restraints)}
    troubles = (
        ConditionType.PROVIDER_AVAILABLE,
        ConditionType.CREDENTIAL_USABLE,
        ConditionType.WORKERS_AVAILABLE,
    )
    return (
        _good(ConditionType.STORE_AVAILABLE),
        *(_condition(kind, found.get(kind)) for kind in troubles),
        _scaling_active(scaling),
    )


def _condition(kind: ConditionType, restraint: Restraint | None) -> Condition:
    if restraint is None:
        return _good(kind)
    return Condition(kind, False, restraint.reason, restraint.message)


def _scaling_active(scaling: ScalingSpec) -> Condition:
    kind = ConditionType.SCALING_ACTIVE
    if scaling.paused:
        message = "scaling is paused (spec.scaling.paused); replicas are frozen"
        return Condition(kind, False, Reason.SCALING_PAUSED, message)
    if scaling.replicas_override is not None:
        message = f"spec.scaling.replicasOverride asks for {scaling.replicas_override}"
        return Condition(kind, False, Reason.REPLICAS_OVERRIDE, message)
    return _good(kind)


def _good(kind: ConditionType) -> Condition:
    return Condition(kind, True, Reason.AS_EXPECTED, "")
