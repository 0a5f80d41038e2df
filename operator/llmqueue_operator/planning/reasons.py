"""Every reason that is given: they feed conditions, events, logs and metrics alike."""

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
    DAY_USED_UP = "DayUsedUp"
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
    WORKERS_PENDING = "WorkersPending"

    INVALID_SPEC = "InvalidSpec"
    CONNECTION_UNUSABLE = "ConnectionUnusable"
    DEPLOYMENT_REFUSED = "DeploymentRefused"
    NAME_TAKEN = "NameTaken"
    FOREIGN_WRITER = "ForeignWriter"
    LIMITS_DIFFER = "LimitsDiffer"
    MEMBERS_DIFFER = "MembersDiffer"

    AS_EXPECTED = "AsExpected"
    """Of a condition that is true."""


class ConditionType(StrEnum):
    """What is said of a queue; true is the good state where nothing else is said.

    While the store cannot be planned on, only StoreAvailable and ScalingActive are given.
    """

    STORE_AVAILABLE = "StoreAvailable"
    PROVIDER_AVAILABLE = "ProviderAvailable"
    CREDENTIAL_USABLE = "CredentialUsable"
    WORKERS_AVAILABLE = "WorkersAvailable"
    SCALING_ACTIVE = "ScalingActive"

    READY = "Ready"
    """The operator's sum of them: jobs are handed out, also while no worker is needed."""
    REPLICA_CONFLICT = "ReplicaConflict"
    """True is bad: another writer sets the replicas. Only there while it is so."""
    BUDGET_CONFLICT = "BudgetConflict"
    """True is bad: the members of a shared budget differ. Only there while it is so."""
