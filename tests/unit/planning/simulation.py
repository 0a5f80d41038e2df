"""A queue, exact windows and workers on a virtual clock, driven by the real planner.

Discrete events: arrivals, pods becoming ready, grants, ends of calls, planner ticks. It has its own
limiter (0.5 s sub-windows that leave a second after the window, and a pacer), so that it can tell
what the planner's numbers are worth.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, pairwise

from llmqueue.config import Limit
from llmqueue.states import JobState
from llmqueue.store.snapshots import BudgetSnapshot, QueueSnapshot, WorkerView
from llmqueue_operator.planning import (
    GroupSnapshot,
    Memory,
    PodPhase,
    PodView,
    QueueInput,
    QueuePlan,
    ScalingSpec,
    plan,
)

QUEUE = "default/sim"
SUB_SECONDS = 0.5
MARK_SECONDS = 30.0


@dataclass
class Window:
    """One request limit as the store enforces it."""

    limit: Limit
    level: float = 0.0
    filled_at: float = 0.0
    charges: dict[int, int] = field(default_factory=dict)

    @property
    def per_second(self) -> float:
        return self.limit.limit / self.limit.seconds * 1.03

    def wait_seconds(self, now: float) -> float:
        """0 and charged, or how long to wait."""
        capacity = max(self.per_second, 2.0)
        self.level = min(capacity, self.level + (now - self.filled_at) * self.per_second)
        self.filled_at = now
        self._expire(now)
        if sum(self.charges.values()) >= self.limit.limit:
            leaves = (min(self.charges) + 1) * SUB_SECONDS + self.limit.seconds + 1
            return max(leaves - now, 1e-6)
        if self.level < 1:
            return (1 - self.level) / self.per_second + 1e-6
        self.level -= 1
        index = math.floor(now / SUB_SECONDS)
        self.charges[index] = self.charges.get(index, 0) + 1
        return 0.0

    def _expire(self, now: float) -> None:
        kept_from = now - self.limit.seconds - 1
        for index in [i for i in self.charges if (i + 1) * SUB_SECONDS <= kept_from]:
            del self.charges[index]


@dataclass
class Worker:
    uid: str
    created: float
    ready_at: float
    ends: list[float] = field(default_factory=list)
    marked_until: float = 0.0


@dataclass
class Record:
    """What happened; times in seconds since the start."""

    plans: list[tuple[float, QueuePlan]] = field(default_factory=list)
    done: list[float] = field(default_factory=list)
    starts: list[float] = field(default_factory=list)
    pod_seconds: float = 0.0
    useful_seconds: float = 0.0
    removed_busy: int = 0

    @property
    def targets(self) -> list[int]:
        return [made.target for _, made in self.plans]

    @property
    def direction_changes(self) -> int:
        steps = [b - a for a, b in zip(self.targets, self.targets[1:], strict=False) if a != b]
        return sum((a > 0) != (b > 0) for a, b in pairwise(steps))


@dataclass
class Simulation:
    """`arrivals` = (time, jobs); `call_seconds` gives each call's length in order of grants;
    `adjust` may change what the store says; `restart` may change what the planner remembers."""

    limit: Limit
    scaling: ScalingSpec
    arrivals: Sequence[tuple[float, int]]
    call_seconds: Callable[[], float]
    pod_start_seconds: float = 1.0
    adjust: Callable[[BudgetSnapshot, float], BudgetSnapshot] = lambda store, _: store
    restart: Callable[[Memory, QueueInput, float], Memory] = lambda memory, _, __: memory
    memory: Memory = Memory()
    now: float = 0.0

    def __post_init__(self) -> None:
        self.window = Window(self.limit)
        self.workers: list[Worker] = []
        self.record = Record()
        self.waiting = self.enqueued = self.grants = 0
        self.busy_seconds = 0.0
        self.replicas = 0
        self._uids = count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._sequence = count()
        self._retry_at = math.inf

    def run(self, until: float, *, stop_when_done: bool = False) -> Record:
        for time, jobs in self.arrivals:
            self._at(time, lambda jobs=jobs: self._arrive(jobs))
        self._at(0.0, self._tick)
        total = sum(jobs for _, jobs in self.arrivals)
        while self._events and self._events[0][0] <= until:
            time, _, event = heapq.heappop(self._events)
            self._pass(time)
            event()
            self._grant()
            if stop_when_done and len(self.record.done) == total:
                break
        return self.record

    def _at(self, time: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (time, next(self._sequence), event))

    def _pass(self, time: float) -> None:
        passed = time - self.now
        self.record.pod_seconds += passed * len(self.workers)
        self.busy_seconds += passed * sum(len(w.ends) for w in self.workers)
        self.now = time

    def _arrive(self, jobs: int) -> None:
        self.waiting += jobs
        self.enqueued += jobs

    def _grant(self) -> None:
        while self.waiting:
            free = [w for w in self.workers if self._takes_jobs(w)]
            if not free:
                return
            wait = self.window.wait_seconds(self.now)
            if wait > 0:
                if not self.now < self._retry_at <= self.now + wait:
                    self._retry_at = self.now + wait
                    self._at(self._retry_at, lambda: None)
                return
            self._start(free[self.grants % len(free)])

    def _takes_jobs(self, worker: Worker) -> bool:
        started = worker.ready_at <= self.now and worker.marked_until <= self.now
        return started and len(worker.ends) < self.scaling.slots_per_worker

    def _start(self, worker: Worker) -> None:
        length = self.call_seconds()
        end = self.now + length
        worker.ends.append(end)
        self.waiting -= 1
        self.grants += 1
        self.record.starts.append(self.now)
        self.record.useful_seconds += length
        self._at(end, lambda: self._end(worker, end))

    def _end(self, worker: Worker, end: float) -> None:
        worker.ends.remove(end)
        self.record.done.append(self.now)

    def _tick(self) -> None:
        snapshot = self._snapshot()
        self.memory = self.restart(self.memory, snapshot.queues[0], self.now)
        made = plan(snapshot, self.memory, self.now)
        self.memory = made.memory
        (queue_plan,) = made.queues
        self.record.plans.append((self.now, queue_plan))
        self._apply(queue_plan)
        self._at(self.now + 1.0, self._tick)

    def _apply(self, made: QueuePlan) -> None:
        for worker in self.workers:
            if f"{worker.uid}:1" in made.mark:
                worker.marked_until = self.now + MARK_SECONDS
            if f"{worker.uid}:1" in made.unmark:
                worker.marked_until = 0.0
        for uid in made.remove:
            worker = next(w for w in self.workers if w.uid == uid)
            self.record.removed_busy += bool(worker.ends)
            self.workers.remove(worker)
        self.replicas = made.replicas
        while len(self.workers) < self.replicas:
            ready_at = self.now + self.pod_start_seconds
            self.workers.append(Worker(f"u{next(self._uids)}", self.now, ready_at))
            self._at(ready_at, lambda: None)

    def _snapshot(self) -> GroupSnapshot:
        in_flight = sum(len(w.ends) for w in self.workers)
        queue = QueueSnapshot(
            queue=QUEUE,
            states={JobState.READY: self.waiting, JobState.SENT: in_flight},
            due_soon=0,
            oldest_ready_seconds=0.0,
            busy_ms=round(self.busy_seconds * 1000),
            grants=self.grants,
            enqueued=self.enqueued,
            settled=len(self.record.done),
            last_settle_seconds=None,
            suspended=False,
            charged={"requests": self.grants},
        )
        state = BudgetSnapshot(
            budget=QUEUE,
            epoch="e",
            queues=(queue,),
            workers=tuple(self._beat(w) for w in self.workers if w.ready_at <= self.now),
            blocked_seconds=0.0,
            rate_factor=1.0,
            breaker="closed",
            breaker_seconds=0.0,
            pauses=(),
            answers=0,
            answers_rate=0,
            answers_unknown=0,
        )
        pods = tuple(self._pod(w) for w in self.workers)
        asked = QueueInput(QUEUE, self.scaling, weight=1, pods=pods, replicas=self.replicas)
        return GroupSnapshot(
            QUEUE, (self.limit,), None, (asked,), replace(self.adjust(state, self.now))
        )

    def _beat(self, worker: Worker) -> WorkerView:
        return WorkerView(
            worker=f"{worker.uid}:1",
            slots=self.scaling.slots_per_worker,
            in_flight=len(worker.ends),
            longest_remaining_seconds=max(worker.ends, default=self.now) - self.now,
            age_seconds=1.0,
            drain_seconds=max(0.0, worker.marked_until - self.now),
            pid=1,
            last_claim_age_seconds=0.0,
        )

    def _pod(self, worker: Worker) -> PodView:
        started = worker.ready_at <= self.now
        phase = PodPhase.RUNNING if started else PodPhase.PENDING
        return PodView(worker.uid, worker.uid, phase, self.now - worker.created, ready=started)
