"""The store's port: what producers, workers, the planner and readers ask of it.

All calls are coroutines. Every one may raise `StoreUnavailable` (nothing is known, repeat) or
`StoreMisconfigured`. The server's clock counts; callers get durations, never instants to wait for.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from llmqueue.batch import BatchView, NewBatch
from llmqueue.config import BudgetConfig, QueueConfig, RegistryEntry
from llmqueue.errors import StoreError
from llmqueue.job import Charge, Enqueued, JobView, NewJob, Progress
from llmqueue.outcome import Outcome
from llmqueue.states import JobState, RefusalReason, WaitReason
from llmqueue.store.snapshots import BudgetSnapshot

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
    """What it may produce at most, over all its choices, as was counted at enqueue; of a handler
    job the queue's default for calls that name no bound."""
    handler: str = ""
    """Name of the function that runs it; "" = the payload is the provider's request."""
    journaled: bool = False
    """Earlier runs made calls: see `WorkerStore.journal`."""


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
class CallRequest:
    """A further provider call of a running handler. `name` is its place in the job's journal."""

    id: str
    fence: str
    number: int
    """Of the call within its run, from 1."""
    name: str
    charge: Charge
    model: str
    credential: str = ""


AcquireVerdict = Literal["granted", "wait", "too-large", "not-allowed", "draining", "lost"]


@dataclass(frozen=True, slots=True)
class AcquireReply:
    """`granted`: charged, ask `mark_sent` next. `wait`: ask again in `wait_seconds`. `too-large`:
    for `limit`, whatever the wait. `not-allowed`: the model; `limit` names those that are.
    `draining`: give the job back. `lost`: the lease is gone.
    """

    verdict: AcquireVerdict
    wait_seconds: float = 0.0
    reason: WaitReason | None = None
    limit: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    """What was reserved for this call."""


@dataclass(frozen=True, slots=True)
class FinishedCall:
    """A call that is over while its run goes on; the outcome's result is the answer to keep."""

    settlement: Settlement
    number: int
    name: str


@dataclass(frozen=True, slots=True)
class Journal:
    """What earlier runs of a job left: answers of finished calls by name, and the names of calls
    whose outcome was never known."""

    answers: Mapping[str, bytes]
    in_doubt: frozenset[str]


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

    async def acquire(self, queue: str, request: CallRequest) -> AcquireReply:
        """Charge the next call of a running handler. May be repeated: it is charged once."""
        ...

    async def finish_calls(self, queue: str, calls: Sequence[FinishedCall]) -> list[bool]:
        """Record finished calls; may be repeated until acknowledged.

        False: the job is no longer its worker's; what the call used was booked all the same.
        """
        ...

    async def journal(self, queue: str, job_id: str) -> Journal: ...
    async def release(self, queue: str, items: Sequence[tuple[str, str]]) -> None:
        """Give unsent (job id, fence) back to the front, at no cost and no attempt."""
        ...

    async def progress(
        self, queue: str, job_id: str, fence: str, *, fraction: float, message: str
    ) -> None:
        """Keep and tell how far a job is (`fraction` 0–1); of a fence that is not the job's present
        one nothing is written."""
        ...

    async def beat(self, beat: Beat) -> BeatReply: ...
    async def leave(self, queue: str, worker: str) -> None:
        """This worker is gone for good; it holds no lease."""
        ...

    async def wait_for_work(self, queue: str, timeout_seconds: float) -> bool:
        """Block on a connection of its own until work may be there."""
        ...


# ---------------------------------------------------------------- planner


class PlannerStore(Protocol):
    """What the operator and `llmqueue up` use; they alone write configuration."""

    async def configure(self, budget: BudgetConfig, queues: Sequence[QueueConfig]) -> str:
        """Write registry and configuration if changed; returns the budget's epoch."""
        ...

    async def remove_queue(self, queue: str) -> None:
        """Refuse enqueues to it; its jobs are kept."""
        ...

    async def snapshot(
        self, budget: str, *, horizon_seconds: float, meters: bool = False
    ) -> BudgetSnapshot:
        """`meters`: with what each queue did, ever."""
        ...

    async def snapshots(
        self, horizons: Mapping[str, float], *, meters: Collection[str] = ()
    ) -> dict[str, BudgetSnapshot | StoreError]:
        """Many at once: budget → horizon in seconds, to budget → snapshot or what went wrong.
        `meters`: budgets of which these are wanted too."""
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


# ---------------------------------------------------------------- those who wait


@dataclass(frozen=True, slots=True)
class News:
    """A job or batch (`subject`: its id) came into a state, or a running job reported progress.

    `id` orders all news of a budget. Of a batch the state is SUCCEEDED or DEAD. `at`: Unix seconds.
    """

    id: str
    subject: str
    state: JobState
    progress: Progress | None
    at: float


@dataclass(frozen=True, slots=True)
class Listening:
    """News that come after the id `after` will be told. `gapless`: they were told all along."""

    after: str
    gapless: bool


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a job is now. Of a batch: SUCCEEDED, DEAD (more failed than allowed), else READY."""

    state: JobState
    progress: Progress | None


class EventStore(Protocol):
    """What those who wait for jobs and batches use. News may be lost (the stream is capped, and
    written only while somebody listens); standings never are."""

    async def budget_of(self, some_id: str) -> str:
        """Budget of a job's or batch's id. Raises UnknownJob."""
        ...

    async def listen(self, budget: str, seconds: float) -> Listening:
        """Have news written for so long."""
        ...

    async def news(self, budget: str, after: str, *, wait_seconds: float) -> tuple[list[News], str]:
        """News after an id, oldest first, and the id to go on after. Waits for the first one where
        there are none yet, on a connection of its own."""
        ...

    async def standings(self, budget: str, ids: Sequence[str]) -> list[Standing | None]:
        """Where jobs and batches of one budget are; None where there is no such one."""
        ...


# ---------------------------------------------------------------- producers and readers


@dataclass(frozen=True, slots=True)
class TenantView:
    """What one tenant has in a queue. `parked_seconds`: how much longer it may not go on at most;
    0 = it has its turns."""

    tenant: str
    waiting: int
    in_flight: int
    parked_seconds: float = 0.0


class BatchStore(Protocol):
    """What producers use for jobs that are counted together."""

    async def open_batch(self, batch: NewBatch) -> None:
        """Begin a batch; one that exists is left as it is. Raises BatchConflict, UnknownQueue."""
        ...

    async def seal_batch(self, batch_id: str) -> None:
        """It takes no more jobs, and ends with the last one that it has. May be repeated."""
        ...

    async def batch(self, batch_id: str) -> BatchView: ...
    async def batches(self, queue: str, *, limit: int = 50) -> list[BatchView]:
        """Batches of a queue that have not ended, oldest first."""
        ...

    async def batch_jobs(self, batch_id: str, *, offset: int, limit: int) -> list[str]:
        """Ids of a batch's jobs in the order of their enqueueing."""
        ...

    async def cancel_batch(self, batch_id: str, *, offset: int, limit: int) -> int:
        """Seal a batch and cancel its jobs from `offset` on; returns how many were looked at, fewer
        than `limit` at the end."""
        ...


class IntakeStore(EventStore, BatchStore, Protocol):
    """What producers and readers use."""

    async def registry(self) -> Mapping[str, RegistryEntry]:
        """Queue id → entry."""
        ...

    async def entry(self, queue: str) -> RegistryEntry:
        """One queue's entry as it is now. Raises UnknownQueue."""
        ...

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Store jobs of one queue, all or none.

        Raises QueueFull, UnknownQueue, IdempotencyConflict, BatchConflict.
        """
        ...

    async def job(self, job_id: str) -> JobView: ...
    async def jobs(self, queue: str, state: JobState, *, limit: int = 50) -> list[JobView]:
        """Jobs in a state, oldest first; without payload and result."""
        ...

    async def cancel(self, job_id: str) -> JobState:
        """Cancel; returns the state after it (`sent`: the worker was told)."""
        ...

    async def tenants(self, queue: str, *, limit: int = 20) -> list[TenantView]:
        """Tenants with something ready, those with most of it first; found among the first 1,000
        in turn of each band."""
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
