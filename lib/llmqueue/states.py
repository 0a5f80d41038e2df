"""The closed sets of words that all processes share."""

from __future__ import annotations

from enum import StrEnum


class JobState(StrEnum):
    """Where a job is. Terminal states never change."""

    READY = "ready"
    DELAYED = "delayed"
    LEASED = "leased"
    SENT = "sent"
    REVIEW = "review"
    SUCCEEDED = "succeeded"
    DEAD = "dead"
    CANCELLED = "cancelled"
    EXPIRED = "expired"

    @property
    def terminal(self) -> bool:
        return self in TERMINAL_STATES


TERMINAL_STATES = frozenset(
    {JobState.SUCCEEDED, JobState.DEAD, JobState.CANCELLED, JobState.EXPIRED}
)


class OutcomeClass(StrEnum):
    """What an attempt came to; each class has one effect on job, budget and credential."""

    SUCCESS = "SUCCESS"
    RATE = "RATE"
    RAMP = "RAMP"
    QUOTA = "QUOTA"
    AUTH = "AUTH"
    FORBIDDEN = "FORBIDDEN"
    OVERLOAD = "OVERLOAD"
    TRANSIENT = "TRANSIENT"
    UNKNOWN = "UNKNOWN"
    MALFORMED = "MALFORMED"
    PERMANENT = "PERMANENT"
    CANCELLED = "CANCELLED"


class Severity(StrEnum):
    """How urgent a dead letter or a condition is."""

    WARNING = "WARNING"
    ERROR = "ERROR"
    CRITICAL = "CRITICAL"


class WaitReason(StrEnum):
    """Why a claim handed out nothing (more)."""

    EMPTY = "empty"
    REQUESTS = "requests"
    INPUT_TOKENS = "input_tokens"
    OUTPUT_TOKENS = "output_tokens"
    TOKENS = "tokens"
    IN_FLIGHT = "in-flight"
    BLOCKED = "blocked"
    BREAKER = "breaker"
    SPEND = "spend"
    SHARE = "share"
    TENANT = "tenant"
    SUSPENDED = "suspended"
    PAUSED = "paused"
    DRAINING = "draining"
    UNCONFIGURED = "unconfigured"
    AGAIN = "again"


class RefusalReason(StrEnum):
    """Why `sent` refused: the request must not be sent, the job is released at no cost."""

    STALE = "stale"
    CANCELLED = "cancelled"
    DRAINING = "draining"
    BLOCKED = "blocked"
    PAUSED = "paused"
    BREAKER = "breaker"
    LATE = "late"
    UNCONFIGURED = "unconfigured"


class LimitUnit(StrEnum):
    """What a limit counts."""

    REQUESTS = "requests"
    INPUT_TOKENS = "input_tokens"
    OUTPUT_TOKENS = "output_tokens"
    TOKENS = "tokens"


class ProviderType(StrEnum):
    """Wire protocols; more come with later releases."""

    OPENAI = "openai"
    ANTHROPIC = "anthropic"
    OPENAI_COMPATIBLE = "openai-compatible"
