"""The control loop of one budget: gather → plan → apply, over worker processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from llmqueue.days import listed_month
from llmqueue.errors import LlmqueueError, StoreError
from llmqueue.states import JobState, LimitUnit
from llmqueue.store.port import PlannerStore
from llmqueue.store.snapshots import BudgetSnapshot
from llmqueue_cli.local.deployment import LocalGroup, LocalQueue
from llmqueue_cli.local.journal import Journal
from llmqueue_cli.local.processes import WorkerEnd, WorkerPool
from llmqueue_operator.planning import (
    Condition,
    GroupSnapshot,
    Memory,
    Plan,
    QueueInput,
    QueuePlan,
    plan,
    remembered,
    seed,
    store_plan_fields,
)

DRAIN_MARK_SECONDS = 30.0
_START_GUESS_SECONDS = 2.0
_MOST_LOOKS = 25
"""In one tick: each look does a little of the store's housekeeping."""
_BUSY = (JobState.READY, JobState.DELAYED, JobState.LEASED, JobState.SENT)


def uid_of(worker: str) -> str:
    """A heartbeat's name is `<uid>:<start nonce>`."""
    return worker.partition(":")[0]


class Controller:
    """Drives the workers of one budget group; `tick` is called once a second and on wake-ups."""

    def __init__(
        self,
        store: PlannerStore,
        group: LocalGroup,
        journal: Journal,
        *,
        on_exit: Callable[[WorkerEnd], None],
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._group = group
        self._journal = journal
        self._on_exit = on_exit
        self._clock = clock
        self._wall_clock = wall_clock
        self._memory = Memory()
        self._configured = False
        self._month = ""
        """For which days of calendar limits are listed in the configuration."""
        self._away_since: float | None = None
        self._said: dict[str, str] = {}
        self.pools: dict[str, WorkerPool] = {}
        self.plans: dict[str, QueuePlan] = {}
        self.snapshot: BudgetSnapshot | None = None
        """The last tick's; None where the store could not be read."""
        self.adopt(group)

    # ------------------------------------------------------------ configuration

    def adopt(self, group: LocalGroup) -> dict[str, WorkerPool]:
        """Use new resources from the next tick on; limits change live, workers only if they must.

        Returns the pools of queues that are no longer in the group, to be drained.
        """
        self._group = group
        self._configured = False
        for item in group.queues:
            pool = self.pools.get(item.queue)
            if pool is None:
                self.pools[item.queue] = WorkerPool(
                    item.workers, self._journal, on_exit=self._on_exit, clock=self._clock
                )
            else:
                pool.renew(item.workers)
        kept = {item.queue for item in group.queues}
        return {name: self.pools.pop(name) for name in set(self.pools) - kept}

    async def configure(self) -> None:
        """Write registry and configuration, and recall what is new here. Raises StoreError."""
        month = self._month_now()
        await self._store.configure(
            self._group.budget, [item.config for item in self._group.queues]
        )
        await self._recall()
        self._configured, self._month = True, month

    def _month_now(self) -> str:
        return listed_month(self._group.budget.limits, at=self._wall_clock())

    async def _recall(self) -> None:
        """Queues whose counters were not yet seen begin with the call time that the last run knew.

        Its number of workers says nothing: they have gone with it.
        """
        known = self._memory.queues
        new = [q for q in self._group.queues if q.queue not in known or not known[q.queue].based]
        seeded = seed(
            [self._input(q) for q in new],
            {q.queue: remembered(await self._store.read_plan(q.queue)) for q in new},
            epoch=self._memory.epoch,
            now=self._clock(),
        )
        self._memory = replace(self._memory, queues={**known, **seeded.queues})

    # ------------------------------------------------------------ one tick

    async def tick(self) -> None:
        """Never raises for what the store does: an outage holds the workers."""
        snapshot, error = await self._look()
        self.snapshot = snapshot
        if snapshot is not None:
            heartbeats = {uid_of(worker.worker): worker.in_flight for worker in snapshot.workers}
            for pool in self.pools.values():
                pool.observe(heartbeats)
        made = plan(self._gather(snapshot, error), self._memory, self._clock())
        self._memory = made.memory
        if made.reconfigure:
            self._configured = False
        for queue_plan in made.queues:
            await self._apply(queue_plan)
        self._tell(made)

    async def _look(self) -> tuple[BudgetSnapshot | None, str]:
        try:
            if not self._configured or self._month != self._month_now():
                await self.configure()
            snapshot = await self._snapshot()
        except LlmqueueError as exc:
            if self._away_since is None:
                self._away_since = self._clock()
                self._journal.say(
                    "store-unavailable",
                    f"the store cannot be used, workers are held: {exc}",
                    subject=self._group.budget.budget,
                )
            return None, str(exc)
        if self._away_since is not None:
            age, self._away_since = self._clock() - self._away_since, None
            self._journal.say(
                "store-back",
                f"the store is back after {age:.0f} s",
                subject=self._group.budget.budget,
            )
        return snapshot, ""

    async def _snapshot(self) -> BudgetSnapshot:
        """The budget once its housekeeping has caught up, or had its share of this tick."""
        looks = 0
        while True:
            found = await self._store.snapshot(
                self._group.budget.budget, horizon_seconds=self._start_seconds()
            )
            looks += 1
            if not found.again or looks == _MOST_LOOKS:
                return found

    def _start_seconds(self) -> float:
        known = [p.start_seconds for p in self.pools.values() if p.start_seconds is not None]
        return max(known, default=_START_GUESS_SECONDS)

    def _gather(self, snapshot: BudgetSnapshot | None, error: str) -> GroupSnapshot:
        away = self._away_since
        return GroupSnapshot(
            budget=self._group.budget.budget,
            limits=self._group.budget.limits,
            max_in_flight=self._group.budget.max_in_flight,
            queues=tuple(self._input(item) for item in self._group.queues),
            store=snapshot,
            store_error=error,
            store_age_seconds=0.0 if away is None else self._clock() - away,
        )

    def _input(self, item: LocalQueue) -> QueueInput:
        pool = self.pools[item.queue]
        start = pool.start_seconds or _START_GUESS_SECONDS
        return QueueInput(
            queue=item.queue,
            scaling=replace(item.scaling, pod_start_seconds=start),
            weight=item.config.weight,
            pods=pool.pods(),
            replicas=pool.replicas,
            credential=item.credential,
            expected_charge={LimitUnit.REQUESTS: 1.0},
        )

    async def _apply(self, queue_plan: QueuePlan) -> None:
        """Marks first, so that nobody leaves who could still be handed a job."""
        queue = queue_plan.queue
        self.plans[queue] = queue_plan
        try:
            if self.snapshot is not None:
                await self._store.mark_drain(queue, queue_plan.mark, seconds=DRAIN_MARK_SECONDS)
                await self._store.unmark_drain(queue, queue_plan.unmark)
                await self._store.write_plan(queue, store_plan_fields(queue_plan))
        except StoreError as exc:
            self._note(f"{queue} marks", f"drain marks not renewed: {exc}", subject=queue)
        await self.pools[queue].apply(replicas=queue_plan.replicas, remove=queue_plan.remove)

    # ------------------------------------------------------------ what is said

    def _note(self, key: str, sentence: str, *, subject: str, **fields: object) -> None:
        """Say it once until it changes."""
        if self._said.get(key) != sentence:
            self._said[key] = sentence
            self._journal.say("condition", sentence, subject=subject, **fields)

    def _tell(self, made: Plan) -> None:
        for queue_plan in made.queues:
            key = f"{queue_plan.queue} target"
            before = int(self._said.get(key, "0"))
            if queue_plan.target != before:
                self._said[key] = str(queue_plan.target)
                self._journal.say(
                    "workers",
                    f"workers {before} → {queue_plan.target}: {queue_plan.bound_by}",
                    subject=queue_plan.queue,
                    before=before,
                    after=queue_plan.target,
                    bound_by=str(queue_plan.bound_by),
                    reason=queue_plan.reason,
                )
            for condition in queue_plan.conditions:
                self._tell_condition(queue_plan.queue, condition)

    def _tell_condition(self, queue: str, condition: Condition) -> None:
        """A condition that is True is as it should be: only its loss and its return are news."""
        key, state = f"{queue} {condition.type}", f"{condition.status} {condition.reason}"
        before, self._said[key] = self._said.get(key, ""), state
        if before == state or (condition.status and not before.startswith("False")):
            return
        because = f": {condition.message}" if condition.message else ""
        self._journal.say(
            "condition",
            f"{condition.type} is {condition.status}, {condition.reason}{because}",
            subject=queue,
            type=condition.type,
            status=condition.status,
            reason=condition.reason,
        )

    # ------------------------------------------------------------ questions and the end

    def idle(self) -> bool:
        """Nothing left to do, as the store said in the last tick."""
        if self.snapshot is None or self.snapshot.epoch is None:
            return False
        return not any(q.states.get(s, 0) for q in self.snapshot.queues for s in _BUSY)

    def busy_worker_seconds(self, snapshot: BudgetSnapshot) -> float:
        """Time that calls took, in seconds of workers with all slots busy."""
        slots = {item.queue: item.scaling.slots_per_worker for item in self._group.queues}
        return sum(q.busy_ms / 1000 / slots[q.queue] for q in snapshot.queues if q.queue in slots)

    def ever_enqueued(self) -> int:
        queues = self.snapshot.queues if self.snapshot else ()
        return sum(queue.enqueued for queue in queues)

    async def write_stopped(self) -> None:
        """Leave a plan that says that nobody works here."""
        fields: Mapping[str, object] = {
            "desired": 0,
            "actual": 0,
            "eta_seconds": None,
            "effective_rpm": 0,
            "bound_by": "",
            "reason": "Stopped",
        }
        for queue in self.pools:
            await self._store.write_plan(queue, fields)
