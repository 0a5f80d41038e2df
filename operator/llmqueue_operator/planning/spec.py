"""LLMQueue → what of it the planner needs."""

from __future__ import annotations

from llmqueue.spec import LLMQueue
from llmqueue_operator.planning.types import ScalingSpec


def scaling_spec(queue: LLMQueue) -> ScalingSpec:
    """`pod_start_seconds` is measured, not declared: it keeps its default here."""
    scaling, wait = queue.spec.scaling, queue.spec.scaling.target_queue_wait_seconds
    return ScalingSpec(
        min_replicas=scaling.min_replicas,
        max_replicas=scaling.max_replicas,
        slots_per_worker=scaling.slots_per_worker,
        target_queue_wait_seconds=None if wait is None else float(wait),
        expected_call_seconds=float(scaling.expected_call_seconds),
        idle_seconds=float(scaling.idle_seconds),
        stabilization_seconds=float(scaling.stabilization_seconds),
        paused=scaling.paused,
        replicas_override=scaling.replicas_override,
        on_outage=scaling.on_outage.policy,
        on_outage_replicas=scaling.on_outage.replicas or 0,
        target_utilization_percent=queue.spec.limits.target_utilization_percent,
        probe_seconds=float(queue.spec.circuit_breaker.probe_seconds),
    )
