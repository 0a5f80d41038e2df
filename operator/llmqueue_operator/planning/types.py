"""What the planner takes and gives; `plan(snapshot, memory, now) -> Plan` for one budget group.

Frozen dataclasses, no I/O, no clock. Seconds unless a name says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from llmqueue.config import Limit
from llmqueue.store.snapshots import BudgetSnapshot


class BoundBy(StrEnum):
    """Which fact decides the replica count."""

    REQUESTS_PER_MINUTE = "RequestsPerMinute"
    INPUT_TOKENS = "InputTokens"
    OUTPUT_TOKENS = "OutputTokens"
    TOKENS = "Tokens"
    REQUESTS_PER_DAY = "RequestsPerDay"
    TOKENS_PER_DAY = "TokensPerDay"
    IN_FLIGHT = "InFlight"
    SPEND = "Spend"
    SHARE = "Share"
    BACKLOG = "Backlog"
    MAX_REPLICAS = "MaxReplicas"
    MIN_REPLICAS = "MinReplicas"
    OVERRIDE = "Override"
    HELD = "Held"
    IDLE = "Idle"


class PodPhase(StrEnum):
    PENDING = "Pending"
    """Asked for, not yet seen in Redis or not Ready."""
    RUNNING = "Running"
    TERMINATING = "Terminating"
    FAILED = "Failed"
    """Crash-looping or its image is missing: counts as coming, no growth."""


@dataclass(frozen=True, slots=True)
class PodView:
    """A worker pod (or local process) as its runner sees it; `uid` joins it to heartbeats."""

    uid: str
    name: str
    phase: PodPhase
    age_seconds: float
    ready: bool = True


@dataclass(frozen=True, slots=True)
class ScalingSpec:
    """spec.scaling, and what of the spec the planner needs."""

    min_replicas: int = 0
    max_replicas: int = 20
    slots_per_worker: int = 8
    target_queue_wait_seconds: float | None = None
    expected_call_seconds: float = 10.0
    idle_seconds: float = 300.0
    stabilization_seconds: float = 60.0
    paused: bool = False
    replicas_override: int | None = None
    on_outage: Literal["Hold", "AtLeast"] = "Hold"
    on_outage_replicas: int = 0
    target_utilization_percent: int = 100
    probe_seconds: float = 300.0
    pod_start_seconds: float = 10.0
    """How long a new pod took to appear in the store lately."""


@dataclass(frozen=True, slots=True)
class QueueInput:
    """One LLMQueue of the group."""

    queue: str
    scaling: ScalingSpec
    weight: int
    pods: tuple[PodView, ...]
    replicas: int
    """What the runner currently asks for (Deployment's spec.replicas)."""
    rolling: bool = False
    """A rollout is under way and within its progress deadline."""
    credential: str = ""
    """Fingerprint of the key its workers use; "" = not known, every pause of the budget applies."""
    expected_charge: Mapping[str, float] = field(default_factory=dict[str, float])
    """Unit → charge per grant assumed until grants were seen; a missing unit binds nothing yet."""


@dataclass(frozen=True, slots=True)
class GroupSnapshot:
    """All that is known in one tick. `store` None: the store could not be read, `store_error` says
    why and `store_age_seconds` for how long."""

    budget: str
    limits: tuple[Limit, ...]
    max_in_flight: int | None
    queues: tuple[QueueInput, ...]
    store: BudgetSnapshot | None
    store_error: str = ""
    store_age_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Condition:
    """A status condition; `reason` is one of reasons.py."""

    type: str
    status: bool
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class QueuePlan:
    """What to do for one queue.

    `target` = workers that should take jobs; `replicas` = target + draining workers still busy.
    `mark` = workers ("<uid>:<nonce>") whose drain mark is to be set or renewed; `unmark` to lift;
    `remove` = pod uids that may go now (Pending, or marked and seen idle).
    """

    queue: str
    wish: int
    target: int
    replicas: int
    mark: tuple[str, ...]
    unmark: tuple[str, ...]
    remove: tuple[str, ...]
    bound_by: BoundBy
    reason: str
    effective_rpm: float
    eta_seconds: float | None
    slot_seconds: float
    """W, the slot time per grant."""
    conditions: tuple[Condition, ...] = ()
    message: str = ""
    """A sentence that explains `reason`."""
    next_change_seconds: float | None = None
    """How long until the target may change by itself (window, idle timer, block, probe); None =
    nothing is waited for."""
    actual: int = 0
    """Workers that take jobs now: seen in the store, not marked, not ending."""
    draining: int = 0
    """Workers that `replicas` counts on top of `target`, because they may not go yet."""


@dataclass(frozen=True, slots=True)
class QueueMemory:
    """What the planner remembers of a queue between ticks; JSON-able through `dataclasses`."""

    target: int = 0
    wishes: tuple[tuple[float, int], ...] = ()
    """(time, wish) within the stabilization window."""
    last_up: float | None = None
    idle_since: float | None = None
    slot_seconds: float | None = None
    """W before the current base: the prior that new grants are weighed against."""
    base_busy_ms: int = 0
    base_grants: int = 0
    arrivals: tuple[tuple[float, int], ...] = ()
    """(time, ever enqueued) for the arrival rate."""
    base_charged: Mapping[str, int] = field(default_factory=dict[str, int])
    target_reason: str = ""
    next_busy_ms: int = 0
    """Counters 200 grants or more after the base: what becomes the base next, so that the base is
    always at least 200 grants old."""
    next_grants: int = 0
    next_charged: Mapping[str, int] = field(default_factory=dict[str, int])
    based: bool = False
    """False until the counters were seen once: a restart knows W but not yet its base."""
    blocked_long: bool = False
    """The running block is one that sent the workers to the minimum."""


@dataclass(frozen=True, slots=True)
class Memory:
    epoch: str | None = None
    reset_until: float | None = None
    outage_raised: bool = False
    """The running outage has had its `onOutage` answer."""
    queues: Mapping[str, QueueMemory] = field(default_factory=dict[str, QueueMemory])
    store_lost: bool = False
    """The last tick could not read the store."""
    blind_until: float | None = None
    """After an outage, when heartbeats may be expected to be fresh again."""


@dataclass(frozen=True, slots=True)
class Remembered:
    """What a status kept of a queue over a restart; None = the status does not say."""

    desired: int | None = None
    """QueuePlan.target"""
    slot_seconds: float | None = None
    """QueuePlan.slot_seconds"""


@dataclass(frozen=True, slots=True)
class Plan:
    queues: tuple[QueuePlan, ...]
    memory: Memory
    reconfigure: bool = False
    """The store lost its configuration: write registry and cfg anew."""
