"""The LLMQueue resource as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from llmqueue.spec.calls import (
    CircuitBreaker,
    GracePeriods,
    Limits,
    ProviderSpec,
    Retry,
    Timeouts,
)
from llmqueue.spec.fields import DnsLabel, Int, Problem, Section
from llmqueue.spec.running import QueueSpec, RedisSpec, Scaling, Spend, WorkerSpec
from llmqueue.spec.status import LLMQueueStatus

API_VERSION = "llmqueue.dev/v1alpha1"
KIND = "LLMQueue"
DEFAULT_NAMESPACE = "default"


class Metadata(Section):
    """Kubernetes' own; what llmqueue does not read is passed over, as its server writes it."""

    model_config = ConfigDict(extra="ignore")

    name: DnsLabel
    namespace: DnsLabel = DEFAULT_NAMESPACE
    uid: str = ""
    generation: Annotated[Int, Field(ge=0)] = 0


class LLMQueueSpec(Section):
    provider: ProviderSpec
    limits: Limits = Limits()
    timeouts: Timeouts = Timeouts()
    grace_periods: GracePeriods = GracePeriods()
    retry: Retry = Retry()
    circuit_breaker: CircuitBreaker = CircuitBreaker()
    scaling: Scaling = Scaling()
    queue: QueueSpec = QueueSpec()
    spend: Spend = Spend()
    worker: WorkerSpec = WorkerSpec()
    redis: RedisSpec = RedisSpec()

    def problems(self) -> Iterator[Problem]:
        limits, timeouts, drain = self.limits, self.timeouts, self.grace_periods.drain_seconds
        if not any(
            (
                limits.requests_per_minute,
                limits.tokens_per_minute,
                limits.input_tokens_per_minute,
                limits.output_tokens_per_minute,
                limits.requests_per_day,
                limits.tokens_per_day,
                limits.max_in_flight,
            )
        ):
            yield Problem(
                "limits",
                "needs at least one limit: requestsPerMinute, tokensPerMinute,"
                " inputTokensPerMinute, outputTokensPerMinute, requestsPerDay, tokensPerDay or"
                " maxInFlight",
            )
        if drain < timeouts.attempt_seconds:
            yield Problem(
                "gracePeriods.drainSeconds",
                "must be ≥ timeouts.attemptSeconds, or a drain would cut running attempts off",
            )
        if drain < timeouts.connect_seconds + timeouts.request_seconds:
            yield Problem(
                "gracePeriods.drainSeconds",
                "must be ≥ timeouts.connectSeconds + timeouts.requestSeconds, or a drain would cut"
                " running calls off",
            )


class LLMQueue(Section):
    """One queue of jobs for one model of one provider account.

    Built from a manifest or from what the API server returns: `LLMQueue.model_validate(document)`.
    """

    api_version: Literal["llmqueue.dev/v1alpha1"]
    kind: Literal["LLMQueue"]
    metadata: Metadata
    spec: LLMQueueSpec
    status: LLMQueueStatus | None = None
