"""Short ways to write snapshots in tests. Everything not named is a healthy, idle default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from llmqueue.config import Limit
from llmqueue.states import JobState, LimitUnit
from llmqueue.store.snapshots import BudgetSnapshot, PauseView, QueueSnapshot, WorkerView
from llmqueue_operator.planning import (
    Condition,
    GroupSnapshot,
    Memory,
    PodPhase,
    PodView,
    QueueInput,
    QueueMemory,
    QueuePlan,
    ScalingSpec,
    plan,
)

QUEUE = "default/q"
BUDGET = "default/q"


def rpm(limit: int, seconds: int = 60) -> Limit:
    return Limit(LimitUnit.REQUESTS, limit, seconds)


def spec(**settings: Any) -> ScalingSpec:
    """One slot, 8 s calls, room for 100 workers."""
    defaults: dict[str, Any] = {
        "slots_per_worker": 1,
        "max_replicas": 100,
        "expected_call_seconds": 8.0,
    }
    return ScalingSpec(**(defaults | settings))


def pod(uid: str, phase: PodPhase = PodPhase.RUNNING, age: float = 100.0, ready: bool = True):
    return PodView(uid=uid, name=f"pod-{uid}", phase=phase, age_seconds=age, ready=ready)


def beat(
    uid: str,
    *,
    nonce: str = "1",
    in_flight: int = 0,
    remaining: float = 0.0,
    age: float = 1.0,
    drain: float = 0.0,
) -> WorkerView:
    return WorkerView(
        worker=f"{uid}:{nonce}",
        slots=1,
        in_flight=in_flight,
        longest_remaining_seconds=remaining,
        age_seconds=age,
        drain_seconds=drain,
        pid=1,
        last_claim_age_seconds=None,
    )


def seen(
    queue: str = QUEUE,
    *,
    ready: int = 0,
    leased: int = 0,
    sent: int = 0,
    delayed: int = 0,
    due: int = 0,
    busy_ms: int = 0,
    grants: int = 0,
    enqueued: int = 0,
    suspended: bool = False,
    charged: Mapping[str, int] | None = None,
) -> QueueSnapshot:
    return QueueSnapshot(
        queue=queue,
        states={
            JobState.READY: ready,
            JobState.LEASED: leased,
            JobState.SENT: sent,
            JobState.DELAYED: delayed,
        },
        due_soon=due,
        oldest_ready_seconds=0.0,
        busy_ms=busy_ms,
        grants=grants,
        enqueued=enqueued,
        settled=0,
        last_settle_seconds=None,
        suspended=suspended,
        charged={"requests": grants} if charged is None else charged,
    )


def store(
    queues: Sequence[QueueSnapshot] = (),
    workers: Sequence[WorkerView] = (),
    *,
    pauses: Sequence[PauseView] = (),
    **facts: Any,
) -> BudgetSnapshot:
    defaults: dict[str, Any] = {
        "epoch": "e1",
        "blocked_seconds": 0.0,
        "rate_factor": 1.0,
        "breaker": "closed",
        "breaker_seconds": 0.0,
        "answers": 0,
        "answers_rate": 0,
        "answers_unknown": 0,
    }
    return BudgetSnapshot(
        budget=BUDGET,
        queues=tuple(queues) or (seen(),),
        workers=tuple(workers),
        pauses=tuple(pauses),
        **(defaults | facts),
    )


def pause(kind: Any = "QUOTA", *, next_probe: float = 200.0, probing: bool = False, key: str = "k"):
    return PauseView(
        credential=key,
        kind=kind,
        message="",
        since_seconds=5.0,
        next_probe_seconds=next_probe,
        probing=probing,
    )


def queue_input(
    scaling: ScalingSpec | None = None, pods: Sequence[PodView] = (), **facts: Any
) -> QueueInput:
    defaults: dict[str, Any] = {"queue": QUEUE, "weight": 1, "replicas": len(pods)}
    return QueueInput(scaling=scaling or spec(), pods=tuple(pods), **(defaults | facts))


def group(
    queues: QueueInput | Sequence[QueueInput],
    state: BudgetSnapshot | None,
    *,
    limits: Sequence[Limit] = (rpm(60),),
    max_in_flight: int | None = None,
    **facts: Any,
) -> GroupSnapshot:
    listed = (queues,) if isinstance(queues, QueueInput) else tuple(queues)
    return GroupSnapshot(
        budget=BUDGET,
        limits=tuple(limits),
        max_in_flight=max_in_flight,
        queues=listed,
        store=state,
        **facts,
    )


def crew(busy: int = 0, idle: int = 0, pending: int = 0, **beats: Any):
    """(pods, heartbeats) of workers b0…, i0…, and pods p0… without a heartbeat."""
    pods = [pod(f"b{i}") for i in range(busy)] + [pod(f"i{i}") for i in range(idle)]
    pods += [pod(f"p{i}", PodPhase.PENDING, age=5.0) for i in range(pending)]
    workers = [beat(f"b{i}", in_flight=1, remaining=10.0 + i, **beats) for i in range(busy)]
    workers += [beat(f"i{i}", **beats) for i in range(idle)]
    return pods, workers


def condition(plan: QueuePlan, kind: str) -> Condition:
    return next(c for c in plan.conditions if c.type == kind)


def remembering(target: int, **facts: Any) -> Memory:
    """Memory of one queue in its steady state at `target`, the store's epoch known."""
    facts.setdefault("wishes", ((0.0, target),))
    return Memory(epoch="e1", queues={QUEUE: QueueMemory(target=target, based=True, **facts)})


def plan_one(
    snapshot: GroupSnapshot, memory: Memory | None = None, now: float = 1000.0
) -> tuple[QueuePlan, Memory]:
    """Plan a group of one queue; memory defaults to the achieved state (target = replicas)."""
    known = remembering(snapshot.queues[0].replicas) if memory is None else memory
    made = plan(snapshot, known, now)
    (queue_plan,) = made.queues
    return queue_plan, made.memory


def settle(
    snapshot: GroupSnapshot, memory: Memory, *, start: float, seconds: int, tick: int = 1
) -> tuple[QueuePlan, Memory]:
    """Plan the same snapshot every `tick` seconds; the last plan and its memory."""
    made, memory = plan_one(snapshot, memory, start)
    for second in range(tick, seconds + 1, tick):
        made, memory = plan_one(snapshot, memory, start + second)
    return made, memory
