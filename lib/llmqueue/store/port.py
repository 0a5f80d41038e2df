"""The store's port: what producers, workers, the planner and readers ask of it.

All calls are coroutines. Every one may raise `StoreUnavailable` (nothing is known, repeat) or
`StoreMisconfigured`. The server's clock counts; callers get durations, never instants to wait for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from llmqueue.config import BudgetConfig, QueueConfig, RegistryEntry
from llmqueue.errors import StoreError
from llmqueue.job import Enqueued, JobView, NewJob
from llmqueue.outcome import Outcome
from llmqueue.states import JobState, RefusalReason, WaitReason

# ---------------------------------------------------------------- workers


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """`worker` = "<uid>:<start nonce>"; `credential` = fingerprint of the key it would use."""

    queue: str
    worker: str
    slots: int
    credential: str = ""
    clean: bool = True
    """False while a job with crashes > 0 runs in this process: no second one is handed out."""


@dataclass(frozen=True, slots=True)
class Grant:
    """A claimed job with its lease. `lease_seconds` from the claim's answer on."""

    id: str
    fence: str
    payload: bytes
    attempt: int
    """1 for the first run; counts recorded runs."""
    model: str
    tenant: str
    feature: str
    timeout_seconds: float | None
    crashes: int
    probe: bool
    possible_duplicate: bool
    correlation_id: str
    input_tokens: int
    output_tokens: int
    """What was reserved for this call."""
    max_output_tokens: int
    """What it may produce at most, over all its choices, as was counted at enqueue."""


@dataclass(frozen=True, slots=True)
class ClaimReply:
    """Grants, and why and for how long not more: the next claim is due in `wait_seconds`.

    With reason EMPTY a worker waits for a wake-up instead, `wait_seconds` at most.
    """

    grants: tuple[Grant, ...]
    wait_seconds: float
    reason: WaitReason | None
    limit: str = ""
    """Name of the limit that binds, where reason is a unit."""


@dataclass(frozen=True, slots=True)
class SentReply:
    """`ok`: the bytes may leave now. Else the job was released at no cost."""

    ok: bool
    reason: RefusalReason | None = None
    wait_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Settlement:
    """One finished run. `entry` is the ledger entry (None where no call was made)."""

    id: str
    fence: str
    outcome: Outcome
    credential: str = ""
    entry: Mapping[str, Any] | None = None
    cost_nano_usd: int | None = None
    jitter: float = 0.0
    """Uniform in [0, 1): spreads retries."""


SettleVerdict = Literal["settled", "repeated", "fenced"]


@dataclass(frozen=True, slots=True)
class SettleReply:
    """`fenced`: the lease had been taken away; usage was booked as an extra paid attempt."""

    verdict: SettleVerdict
    state: JobState | None


@dataclass(frozen=True, slots=True)
class Held:
    """What a worker knows of a lease: enough to give it back to a store that has lost it."""

    input_tokens: int
    output_tokens: int
    """What its claim reserved."""
    sent_seconds: float | None = None
    """How long ago its request left; None: it has not."""


@dataclass(frozen=True, slots=True)
class Beat:
    """A worker's heartbeat: renews its leases and shows it to the planner.

    `leases` maps job id → fence, `held` job id → what the store may have to be told of it again,
    after a failover; a lease that is not in it is renewed, and never taken back.
    """

    queue: str
    worker: str
    slots: int
    leases: Mapping[str, str]
    longest_remaining_seconds: float = 0.0
    credential: str = ""
    ready: bool = True
    pid: int = 0
    held: Mapping[str, Held] = field(default_factory=dict[str, Held])


@dataclass(frozen=True, slots=True)
class BeatReply:
    """`lost`: ids whose lease is no longer this worker's; `cancelled`: ids to stop now;
    `draining`: a drain mark is set, take nothing new."""

    lost: frozenset[str]
    cancelled: frozenset[str]
    draining: bool


class WorkerStore(Protocol):
    """What a worker process uses."""

    async def claim(self, request: ClaimRequest) -> ClaimReply: ...
    async def mark_sent(
        self, queue: str, items: Sequence[tuple[str, str]], *, credential: str
    ) -> list[SentReply]:
        """Decide for each (job id, fence) whether its request may leave now."""
        ...

    async def settle(self, queue: str, items: Sequence[Settlement]) -> list[SettleReply]:
        """Record outcomes; may be repeated until acknowledged."""
        ...

    async def release(self, queue: str, items: Sequence[tuple[str, str]]) -> None:
        """Give unsent (job id, fence) back to the front, at no cost and no attempt."""
        ...

    async def beat(self, beat: Beat) -> BeatReply: ...
    async def leave(self, queue: str, worker: str) -> None:
        """This worker is gone for good; it holds no lease."""
        ...

    async def wait_for_work(self, queue: str, timeout_seconds: float) -> bool:
        """Block on a connection of its own until work may be there."""
        ...


# ---------------------------------------------------------------- planner


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
    win_levels: Mapping[str, int] = field(default_factory=dict[str, int])
    """Limit name → charged within the window."""
    again: bool = False
    """Housekeeping did not finish: look again soon."""


class PlannerStore(Protocol):
    """What the operator and `llmqueue up` use; they alone write configuration."""

    async def configure(self, budget: BudgetConfig, queues: Sequence[QueueConfig]) -> str:
        """Write registry and configuration if changed; returns the budget's epoch."""
        ...

    async def remove_queue(self, queue: str) -> None:
        """Refuse enqueues to it; its jobs are kept."""
        ...

    async def snapshot(self, budget: str, *, horizon_seconds: float) -> BudgetSnapshot: ...
    async def snapshots(
        self, horizons: Mapping[str, float]
    ) -> dict[str, BudgetSnapshot | StoreError]:
        """Many at once: budget → horizon in seconds, to budget → snapshot or what went wrong."""
        ...

    async def mark_drain(
        self, queue: str, workers: Sequence[str], *, seconds: float
    ) -> dict[str, int]:
        """Set or renew drain marks; returns in flight of each after the mark."""
        ...

    async def unmark_drain(self, queue: str, workers: Sequence[str]) -> None: ...
    async def write_plan(self, queue: str, plan: Mapping[str, Any]) -> None: ...
    async def read_plan(self, queue: str) -> Mapping[str, str]:
        """The plan that was written last; empty where none was."""
        ...

    def wakeups(self) -> Any:
        """Async iterator of queue ids on which work appeared (0 → 1)."""
        ...


# ---------------------------------------------------------------- producers and readers


class IntakeStore(Protocol):
    """What producers and readers use."""

    async def registry(self) -> Mapping[str, RegistryEntry]:
        """Queue id → entry."""
        ...

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Store jobs of one queue, all or none.

        Raises QueueFull, UnknownQueue, IdempotencyConflict.
        """
        ...

    async def job(self, job_id: str) -> JobView: ...
    async def jobs(self, queue: str, state: JobState, *, limit: int = 50) -> list[JobView]:
        """Jobs in a state, oldest first; without payload and result."""
        ...

    async def cancel(self, job_id: str) -> JobState:
        """Cancel; returns the state after it (`sent`: the worker was told)."""
        ...

    async def queue_status(self, queue: str) -> dict[str, Any]:
        """States, in flight, and the plan the planner wrote last."""
        ...

    async def explain(self, job_id: str) -> dict[str, Any]:
        """Why a job is where it is: `state`, `reason`, `wait_seconds`, `position`, `limit`."""
        ...

    async def set_suspended(self, queue: str, suspended: bool) -> None: ...
    async def resume(self, queue: str) -> int:
        """Lift provider pauses and the breaker by a probe now; returns how many were lifted."""
        ...


class Store(WorkerStore, PlannerStore, IntakeStore, Protocol):
    """All of it; `RedisStore` is the one implementation."""

    async def check(self) -> list[str]:
        """Verify server version, eviction policy; returns warnings. Raises StoreMisconfigured."""
        ...

    async def close(self) -> None: ...
