"""Every reason a plan can give: they feed conditions, events, logs and metrics alike."""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """Why the target is what it is, or why a condition is false."""

    STEADY = "Steady"
    SCALED_UP = "ScaledUp"
    SCALED_DOWN = "ScaledDown"
    SCALED_TO_ZERO = "ScaledToZero"
    STABILIZATION_WINDOW = "StabilizationWindow"
    IDLE_TIMER = "IdleTimer"
    IDLE = "Idle"
    SUSPENDED = "Suspended"
    ROLLOUT_IN_PROGRESS = "RolloutInProgress"

    SCALING_PAUSED = "ScalingPaused"
    REPLICAS_OVERRIDE = "ReplicasOverride"

    STORE_UNAVAILABLE = "StoreUnavailable"
    STORE_RESET = "StoreReset"
    STORE_UNCONFIGURED = "StoreUnconfigured"

    RATE_LIMITED = "RateLimited"
    BREAKER_OPEN = "BreakerOpen"
    UNKNOWN_OUTCOMES = "UnknownOutcomes"
    QUOTA_EXHAUSTED = "QuotaExhausted"
    CREDENTIAL_REJECTED = "CredentialRejected"
    CREDENTIAL_FORBIDDEN = "CredentialForbidden"

    WORKERS_FAILING = "WorkersFailing"
    WORKERS_NOT_SEEN = "WorkersNotSeen"

    AS_EXPECTED = "AsExpected"
    """Of a condition that is true."""


class ConditionType(StrEnum):
    """What the planner says of a queue; true is the good state.

    While the store cannot be planned on, only StoreAvailable and ScalingActive are given.
    """

    STORE_AVAILABLE = "StoreAvailable"
    PROVIDER_AVAILABLE = "ProviderAvailable"
    CREDENTIAL_USABLE = "CredentialUsable"
    WORKERS_AVAILABLE = "WorkersAvailable"
    SCALING_ACTIVE = "ScalingActive"
