"""Configuration as the store keeps it: derived from LLMQueue resources, one writer (the operator,
or `llmqueue up`), read by every script and client.

Times are seconds, money is integer nano-dollars.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from llmqueue.states import LimitUnit, ProviderType

TokenRule = Literal["max", "sum"]
"""How a reservation in `tokens` follows from input and output estimates."""

TokenAccounting = Literal["keep", "correct"]
"""Whether the provider counts the reservation (`keep`) or the actual usage (`correct`)."""

OUTCOME_MEMORY_SECONDS = 86_400
LONGEST_PACED_SECONDS = 3600


@dataclass(frozen=True, slots=True)
class Limit:
    """At most `limit` units in any window of `seconds`, or in a calendar day."""

    unit: LimitUnit
    limit: int
    seconds: int = 60
    time_zone: str | None = None
    """In a calendar day of this IANA time zone, not in any `seconds` (86,400 then)."""

    @property
    def name(self) -> str:
        if self.time_zone is not None:
            return f"{self.unit}/day@{self.time_zone}"
        return f"{self.unit}/{self.seconds}"

    @property
    def paced(self) -> bool:
        """Whether calls are spread over the window; those of a day may all go in its morning."""
        return self.seconds <= LONGEST_PACED_SECONDS

    @property
    def period(self) -> str:
        """The window in words."""
        if self.time_zone is not None:
            return f"a day of {self.time_zone}"
        return f"any {self.seconds} s"


@dataclass(frozen=True, slots=True)
class Schedule:
    """Delays before the 1st, 2nd, … retry; `max_attempts` None means len(delays) + 1."""

    delays_seconds: tuple[float, ...]
    max_attempts: int | None = None


@dataclass(frozen=True, slots=True)
class UnknownOutcomePolicy:
    policy: Literal["Review", "Retry", "Fail"] = "Review"
    auto_retry_below_nano_usd: int = 50_000_000
    max_auto_retries: int = 1


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    rate_limit: Schedule = Schedule((2, 5, 12, 30, 75))
    overload: Schedule = Schedule((15, 60, 180))
    transient: Schedule = Schedule((3, 10, 30))
    malformed: Schedule = Schedule((3, 10))
    jitter_percent: int = 30
    unknown_outcome: UnknownOutcomePolicy = UnknownOutcomePolicy()


@dataclass(frozen=True, slots=True)
class BreakerPolicy:
    failures: int = 10
    window_seconds: int = 60
    open_seconds: int = 120
    probe_seconds: int = 300


@dataclass(frozen=True, slots=True)
class Retention:
    succeeded_seconds: int = 86_400
    failed_seconds: int = 604_800
    max_succeeded: int | None = None
    max_failed: int | None = None


@dataclass(frozen=True, slots=True)
class BudgetConfig:
    """One provider account and model: everything the claim must respect."""

    budget: str
    limits: tuple[Limit, ...]
    max_in_flight: int | None = None
    token_rule: TokenRule = "max"
    token_accounting: TokenAccounting = "keep"
    learned_output: bool = False
    """Reserve a learned high quantile of output tokens instead of the declared maximum."""
    learn_up: bool = False
    """A larger limit in the provider's headers raises the declared one."""
    header_window_seconds: int | None = None
    """Window of limits in headers that do not tell it; None = such limits are passed over."""
    breaker: BreakerPolicy = BreakerPolicy()
    lease_seconds: float = 10.0
    ramp_seconds: float = 10.0
    slow_ramp_seconds: float = 120.0
    idle_ramp_seconds: float = 600.0
    max_crashes: int = 3
    outcome_memory_seconds: int = OUTCOME_MEMORY_SECONDS


@dataclass(frozen=True, slots=True)
class TenantLimits:
    """Of each single tenant. `burst`: calls that it may make at once after a pause."""

    requests_per_second: int | None = None
    burst: int | None = None
    max_in_flight: int | None = None


@dataclass(frozen=True, slots=True)
class QueueConfig:
    """One LLMQueue on a budget."""

    queue: str
    budget: str
    provider: ProviderType
    models: tuple[str, ...] = ()
    """Allowed models; empty = any."""
    default_max_output_tokens: int = 4096
    attempt_seconds: float = 240.0
    weight: int = 1
    suspended: bool = False
    max_jobs: int = 100_000
    max_bytes: int | None = None
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    retention: Retention = Retention()
    idempotency_seconds: int = 86_400
    job_deadline_seconds: float | None = None
    per_tenant: TenantLimits | None = None
    band_max_in_flight: tuple[int | None, ...] = ()
    """Calls in flight of each band, the most urgent first; empty = no band has a limit."""
    handlers: bool = False
    """Its workers have handlers: jobs may name one, and failures are reported as jobs."""
    durability: Literal["Standard", "Strict"] = "Standard"


@dataclass(frozen=True, slots=True)
class RegistryEntry:
    """What a producer needs to know of a queue, from `llmqueue:registry`."""

    config: QueueConfig
    code: str
    """The 4-character budget code that ids begin with."""
    limits: tuple[Limit, ...]
    token_rule: TokenRule
    generation: int
