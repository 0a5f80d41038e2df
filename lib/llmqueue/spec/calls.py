"""Sections of the spec that say how calls are made: provider, limits, time-outs, retries."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from llmqueue.spec.fields import (
    BaseUrl,
    DnsLabel,
    DnsSubdomain,
    Int,
    LongSeconds,
    ModelName,
    NanoUsd,
    Problem,
    Requests,
    Seconds,
    SecondsOrZero,
    SecretKey,
    Section,
    TimeZone,
    Tokens,
    unique,
)
from llmqueue.states import ProviderType

InFlight = Annotated[Int, Field(ge=1, le=100_000)]
Percent = Annotated[Int, Field(ge=0, le=100)]
Attempts = Annotated[Int, Field(ge=1, le=1_000)]
Delays = Annotated[tuple[SecondsOrZero, ...], Field(min_length=1, max_length=20)]

_USERINFO = re.compile(r"https?://[^/]*@")


class CredentialsSecretRef(Section):
    name: DnsSubdomain
    key: SecretKey = "api-key"


class ProviderSpec(Section):
    type: ProviderType
    base_url: BaseUrl | None = Field(default=None, alias="baseURL")
    models: Annotated[tuple[ModelName, ...], Field(max_length=100), *unique()] = ()
    credentials_secret_ref: CredentialsSecretRef | None = None
    idempotency: Literal["None", "Honoured"] = "None"

    def problems(self) -> Iterator[Problem]:
        if self.type is ProviderType.OPENAI_COMPATIBLE and self.base_url is None:
            yield Problem("baseURL", "is required for type openai-compatible")
        if self.base_url is not None and _USERINFO.match(self.base_url):
            yield Problem(
                "baseURL", "must not hold a user name or password: use credentialsSecretRef"
            )


class SharedBudget(Section):
    name: DnsLabel
    weight: Annotated[Int, Field(ge=1, le=1_000)] = 1


class PerTenant(Section):
    requests_per_second: Requests | None = None
    burst_requests: Requests | None = None
    max_in_flight: InFlight | None = None


class PerBand(Section):
    """Calls in flight of each priority class."""

    urgent: InFlight | None = None
    high: InFlight | None = None
    normal: InFlight | None = None
    low: InFlight | None = None


class Limits(Section):
    requests_per_minute: Requests | None = None
    tokens_per_minute: Tokens | None = None
    input_tokens_per_minute: Tokens | None = None
    output_tokens_per_minute: Tokens | None = None
    requests_per_day: Requests | None = None
    tokens_per_day: Tokens | None = None
    day_time_zone: TimeZone | None = None
    max_in_flight: InFlight | None = None
    target_utilization_percent: Annotated[Int, Field(ge=1, le=100)] = 100
    learn_from_headers: Literal["LowerOnly", "Both"] = "LowerOnly"
    default_max_output_tokens: Annotated[Int, Field(ge=1, le=10_000_000)] = 4096
    shared_budget: SharedBudget | None = None
    per_tenant: PerTenant | None = None
    max_in_flight_per_band: PerBand | None = None

    @property
    def limits_days(self) -> bool:
        return self.requests_per_day is not None or self.tokens_per_day is not None


class Timeouts(Section):
    connect_seconds: Seconds = 10
    request_seconds: Seconds = 120
    stream_idle_seconds: Seconds = 60
    attempt_seconds: Seconds = 240
    job_deadline_seconds: LongSeconds | None = None


class GracePeriods(Section):
    drain_seconds: Seconds = 300
    shutdown_margin_seconds: Annotated[Int, Field(ge=1, le=600)] = 10


class RateLimitRetry(Section):
    delays_seconds: Delays = (2, 5, 12, 30, 75)


class OverloadRetry(Section):
    delays_seconds: Delays = (15, 60, 180)
    max_attempts: Attempts | None = None


class TransientRetry(Section):
    delays_seconds: Delays = (3, 10, 30)
    max_attempts: Attempts | None = None


class MalformedRetry(Section):
    delays_seconds: Delays = (3, 10)
    max_attempts: Attempts | None = None


class UnknownOutcome(Section):
    policy: Literal["Review", "Retry", "Fail"] = "Review"
    auto_retry_below_nano_usd: NanoUsd = Field(default=50_000_000, alias="autoRetryBelowUSD")
    max_auto_retries: Annotated[Int, Field(ge=0, le=10)] = 1


class Retry(Section):
    rate_limit: RateLimitRetry = RateLimitRetry()
    overload: OverloadRetry = OverloadRetry()
    transient: TransientRetry = TransientRetry()
    malformed: MalformedRetry = MalformedRetry()
    jitter_percent: Percent = 30
    unknown_outcome: UnknownOutcome = UnknownOutcome()


class CircuitBreaker(Section):
    failures: Annotated[Int, Field(ge=1, le=100_000)] = 10
    window_seconds: Seconds = 60
    open_seconds: Seconds = 120
    probe_seconds: Seconds = 300
