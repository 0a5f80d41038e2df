"""What the planner sees of a budget: one consistent look at its queues, workers, limits, troubles.

The server's clock counts: these are durations, never instants.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from llmqueue.states import JobState
from llmqueue.store.meters import Meters


@dataclass(frozen=True, slots=True)
class WorkerView:
    """A worker as its last heartbeat showed it."""

    worker: str
    """ "<uid>:<start nonce>" """
    slots: int
    in_flight: int
    longest_remaining_seconds: float
    age_seconds: float
    drain_seconds: float
    """How much longer its drain mark holds; 0 = not marked."""
    pid: int
    last_claim_age_seconds: float | None
    credential: str = ""
    """Fingerprint of the key that it uses."""
    queue: str = ""


@dataclass(frozen=True, slots=True)
class PauseView:
    """A credential pause."""

    credential: str
    kind: Literal["QUOTA", "AUTH", "FORBIDDEN"]
    message: str
    since_seconds: float
    next_probe_seconds: float
    """How long until one probe may go; 0 = now."""
    probing: bool


@dataclass(frozen=True, slots=True)
class QueueSnapshot:
    queue: str
    states: Mapping[JobState, int]
    """Non-terminal states as they are; terminal ones as kept (retention)."""
    due_soon: int
    """Delayed jobs due within the asked horizon."""
    oldest_ready_seconds: float
    busy_ms: int
    grants: int
    enqueued: int
    """Ever enqueued: its difference over time is the arrival rate."""
    settled: int
    last_settle_seconds: float | None
    suspended: bool
    charged: Mapping[str, int]
    """Ever charged per unit (requests, input_tokens, output_tokens, tokens): with `grants`, the
    expected charge per grant."""
    held_back: int = 0
    """Ready jobs that the limits of their tenants and bands keep from running beside the others; of
    very many tenants an estimate."""
    ready_by_band: tuple[int, ...] = ()
    """The most urgent band first."""
    in_flight_by_band: tuple[int, ...] = ()
    tenants_waiting: int = 0
    """With something ready, those that may not go on now (parked) too."""
    tenants_parked: int = 0
    stored_bytes: int = 0
    """Payloads of jobs that have not ended: what `maxBytes` bounds."""
    review_oldest_seconds: float | None = None
    """How long a job is in review; None where none is."""
    estimate_ratio: float | None = None
    """Input tokens of the last successful calls as a share of the estimated ones; None before the
    first."""
    meters: Meters | None = None
    """Only where it was asked for."""

    @property
    def claimable(self) -> int:
        """Ready jobs that workers could be busy with."""
        return self.states.get(JobState.READY, 0) - self.held_back


@dataclass(frozen=True, slots=True)
class LimitView:
    """A limit as it is kept now. `name` is that of `config.Limit`."""

    name: str
    declared: int
    effective: int
    """What claims go by: declared, or as the provider's headers and 429s taught."""
    used: int
    """Charged within the window."""
    frees_seconds: float
    """Until a part of the window is free again; of a calendar day, until its end."""


@dataclass(frozen=True, slots=True)
class BudgetSnapshot:
    """One consistent look at a budget."""

    budget: str
    epoch: str | None
    """None: the store knows no configuration (`StoreReset`)."""
    queues: tuple[QueueSnapshot, ...]
    workers: tuple[WorkerView, ...]
    blocked_seconds: float
    """How much longer nothing may be sent after a 429; 0 = not blocked."""
    rate_factor: float
    """0–1: ramp, slow ramp, halved by a storm of 429s."""
    breaker: Literal["closed", "open", "half-open"]
    breaker_seconds: float
    """Until the next breaker probe."""
    pauses: tuple[PauseView, ...]
    answers: int
    """Answers within the breaker's window, and of these 429s and unknown outcomes."""
    answers_rate: int
    answers_unknown: int
    limits: tuple[LimitView, ...] = ()
    again: bool = False
    """Housekeeping did not finish: look again soon."""

    @property
    def win_levels(self) -> dict[str, int]:
        """Limit name → charged within the window."""
        return {each.name: each.used for each in self.limits}

    @property
    def effective_limits(self) -> dict[str, int]:
        """Limit name → what claims go by."""
        return {each.name: each.effective for each in self.limits}
