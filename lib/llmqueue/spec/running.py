"""Sections of the spec that say how work is kept and run: scaling, queue, spend, worker, redis."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, StringConstraints

from llmqueue.spec.fields import (
    ENV_NAME_PATTERN,
    MODULE_PATTERN,
    DnsLabel,
    DnsSubdomain,
    Flag,
    Int,
    Label,
    LongSeconds,
    ModelName,
    NanoUsd,
    Opaque,
    Problem,
    Replicas,
    Seconds,
    SecondsOrZero,
    SecretKey,
    Section,
    unique,
)

Jobs = Annotated[Int, Field(ge=1, le=100_000_000)]
Quantities = dict[str, Int | str]


class OnOutage(Section):
    policy: Literal["Hold", "AtLeast"] = "Hold"
    replicas: Annotated[Int, Field(ge=1, le=10_000)] | None = None

    def problems(self) -> Iterator[Problem]:
        if self.policy == "AtLeast" and self.replicas is None:
            yield Problem("replicas", "is required for policy AtLeast")


class Scaling(Section):
    min_replicas: Replicas = 0
    max_replicas: Annotated[Int, Field(ge=1, le=10_000)] = 20
    slots_per_worker: Annotated[Int, Field(ge=1, le=1_000)] = 8
    target_queue_wait_seconds: Seconds | None = None
    expected_call_seconds: Seconds = 10
    idle_seconds: SecondsOrZero = 300
    stabilization_seconds: SecondsOrZero = 60
    paused: Flag = False
    replicas_override: Replicas | None = None
    on_outage: OnOutage = OnOutage()

    def problems(self) -> Iterator[Problem]:
        message = "must be ≤ maxReplicas"
        if self.min_replicas > self.max_replicas:
            yield Problem("minReplicas", message)
        if self.replicas_override is not None and self.replicas_override > self.max_replicas:
            yield Problem("replicasOverride", message)
        if (self.on_outage.replicas or 0) > self.max_replicas:
            yield Problem("onOutage.replicas", message)


class RetentionSpec(Section):
    succeeded_seconds: LongSeconds = 86_400
    failed_seconds: LongSeconds = 604_800
    max_succeeded: Jobs | None = None
    max_failed: Jobs | None = None


class QueueSpec(Section):
    max_jobs: Jobs = 100_000
    max_bytes: Annotated[Int, Field(ge=1, le=1_099_511_627_776)] | None = None
    retention: RetentionSpec = RetentionSpec()
    idempotency_seconds: LongSeconds = 86_400
    suspend: Flag = False


class SpendCap(Section):
    scope: Literal["Queue", "Feature", "Tenant"]
    period: Literal["Day", "Month"]
    nano_usd: NanoUsd = Field(alias="usd")


class ModelPrice(Section):
    """US dollars for a million tokens."""

    model: ModelName
    input_nano_usd: NanoUsd = Field(alias="inputUSDPerMillionTokens")
    output_nano_usd: NanoUsd = Field(alias="outputUSDPerMillionTokens")
    cached_input_nano_usd: NanoUsd | None = Field(
        default=None, alias="cachedInputUSDPerMillionTokens"
    )
    cache_write_nano_usd: NanoUsd | None = Field(
        default=None, alias="cacheWriteUSDPerMillionTokens"
    )


class Spend(Section):
    caps: Annotated[tuple[SpendCap, ...], Field(max_length=6), *unique("scope", "period")] = ()
    time_zone: Annotated[str, StringConstraints(min_length=1, max_length=64)] = "UTC"
    on_exceeded: Literal["Pause"] = "Pause"
    features: Annotated[tuple[Label, ...], Field(max_length=100), *unique()] = ()
    prices: Annotated[tuple[ModelPrice, ...], Field(max_length=100), *unique("model")] = ()


class EnvironmentVariable(Section):
    name: Annotated[str, StringConstraints(min_length=1, max_length=256, pattern=ENV_NAME_PATTERN)]
    value: Annotated[str, StringConstraints(max_length=32_768)] | None = None
    value_from: Opaque | None = None

    def problems(self) -> Iterator[Problem]:
        if self.name.startswith("LLMQUEUE_"):
            yield Problem("name", "must not begin with LLMQUEUE_: those follow from this resource")
        if self.value is not None and self.value_from is not None:
            yield Problem("valueFrom", "must be left out where value is set")


class Resources(Section):
    requests: Annotated[Quantities, Field(max_length=20)] | None = None
    limits: Annotated[Quantities, Field(max_length=20)] | None = None


class Partial(Section):
    """An object of Kubernetes of which only the fields that a rule reads are declared."""

    model_config = ConfigDict(extra="allow")


class PodContainer(Partial):
    name: DnsLabel
    command: Annotated[tuple[str, ...], Field(max_length=100)] | None = None
    args: Annotated[tuple[str, ...], Field(max_length=100)] | None = None
    liveness_probe: Opaque | None = None
    readiness_probe: Opaque | None = None
    startup_probe: Opaque | None = None
    lifecycle: Opaque | None = None

    @property
    def replaces_the_worker(self) -> bool:
        """It is the worker's container, and would run something else or end otherwise."""
        fixed = (
            self.command,
            self.args,
            self.liveness_probe,
            self.readiness_probe,
            self.startup_probe,
            self.lifecycle,
        )
        return self.name == "worker" and any(value is not None for value in fixed)


PodContainers = Annotated[tuple[PodContainer, ...], Field(max_length=20), *unique("name")]


class PodSpec(Partial):
    termination_grace_period_seconds: Int | None = None
    restart_policy: Annotated[str, StringConstraints(max_length=64)] | None = None
    containers: (
        Annotated[tuple[PodContainer, ...], Field(max_length=20), *unique("name")] | None
    ) = None


class PodTemplate(Partial):
    metadata: Opaque | None = None
    spec: PodSpec | None = None

    def problems(self) -> Iterator[Problem]:
        spec = self.spec
        if spec is None:
            return
        if spec.termination_grace_period_seconds is not None:
            yield Problem(
                "spec.terminationGracePeriodSeconds", "must be left out: set spec.gracePeriods"
            )
        if spec.restart_policy is not None:
            yield Problem("spec.restartPolicy", "must be left out: workers are always restarted")
        if any(container.replaces_the_worker for container in spec.containers or ()):
            yield Problem(
                "spec.containers",
                "must leave out command, args, probes and lifecycle of the container worker",
            )


class WorkerSpec(Section):
    image: Annotated[str, StringConstraints(min_length=1, max_length=512)] | None = None
    handlers: (
        Annotated[str, StringConstraints(min_length=1, max_length=256, pattern=MODULE_PATTERN)]
        | None
    ) = None
    env: Annotated[tuple[EnvironmentVariable, ...], Field(max_length=100), *unique("name")] = ()
    resources: Resources | None = None
    pod_template: PodTemplate | None = None
    max_jobs: Annotated[Int, Field(ge=0, le=1_000_000_000)] = 0
    max_seconds: Annotated[Int, Field(ge=0, le=31_536_000)] = 0
    max_memory_mib: Annotated[Int, Field(ge=0, le=1_048_576)] = Field(
        default=512, alias="maxMemoryMiB"
    )


class WorkerSecretRef(Section):
    name: DnsSubdomain
    key: SecretKey = "url"


class RedisSpec(Section):
    connection: DnsLabel = "default"
    worker_secret_ref: WorkerSecretRef | None = None
    durability: Literal["Standard", "Strict"] = "Standard"
