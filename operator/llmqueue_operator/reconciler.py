"""One budget, level-based: gather → plan → apply → status."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import structlog

from llmqueue.errors import InvalidResource, LlmqueueError, QueueFull
from llmqueue.spec import unserved_fields
from llmqueue.states import JobState
from llmqueue.store import RedisStore
from llmqueue.store.snapshots import PauseView
from llmqueue_operator.apply import Applier
from llmqueue_operator.connections import Connections
from llmqueue_operator.errors import ApiError, UnusableConnection
from llmqueue_operator.gather import Gatherer, is_rolling
from llmqueue_operator.groups import Assembly, Group, Member, assemble
from llmqueue_operator.kube import Cluster
from llmqueue_operator.lookout import Lookout, Sight
from llmqueue_operator.metrics import Metrics
from llmqueue_operator.obstacles import obstacle
from llmqueue_operator.planning import (
    Condition,
    ConditionType,
    Memory,
    Plan,
    QueuePlan,
    Reason,
    pauses_of,
    plan,
    store_plan_fields,
    was_reset,
)
from llmqueue_operator.pods import worker_deployment
from llmqueue_operator.recorder import Recorder
from llmqueue_operator.removals import Removals
from llmqueue_operator.settings import OperatorSettings
from llmqueue_operator.status import Facts, status_of, worth_writing
from llmqueue_operator.views import QueueView
from llmqueue_operator.world import World

_log = structlog.get_logger()

TICK_SECONDS = 1.0
QUIET_SECONDS = 10.0
"""Between two looks at a budget where nothing waits, runs or is wanted."""
DRAIN_MARK_SECONDS = 30.0
_PLAN_SECONDS = 5.0
"""Numbers of a plan are written to the store at most so often."""
_LIVE = (JobState.READY, JobState.DELAYED, JobState.LEASED, JobState.SENT)


@dataclass(slots=True)
class _Written:
    """The plan of a queue that the store has."""

    fields: dict[str, str | float | int]
    at: float


@dataclass(frozen=True, slots=True)
class Parts:
    """What a reconciler works with. `check` raises NotLeading; `clock` is monotonic."""

    settings: OperatorSettings
    cluster: Cluster
    world: World
    connections: Connections
    lookout: Lookout
    recorder: Recorder
    applier: Applier
    metrics: Metrics
    check: Callable[[], None]
    clock: Callable[[], float] = time.monotonic


class Reconciler:
    """Keeps what the planner remembers between ticks."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._gatherer = Gatherer(parts.world)
        self._memories: dict[str, tuple[str, Memory]] = {}
        """Budget → its Redis connection, and what is remembered of it there."""
        self._written: dict[str, _Written] = {}
        self._removals = Removals()

    def forget(self) -> None:
        """A new term begins: everything is seeded anew from what the cluster says."""
        self._memories.clear()
        self._removals.forget()
        self._written.clear()
        self._parts.lookout.forget()
        self._parts.applier.forget()
        self._parts.recorder.forget()

    def forget_queue(self, key: str, budget: str | None) -> None:
        """It is gone, or has become another one of the same name."""
        if budget is not None:
            self._parts.lookout.forget(budget)
        self._gatherer.forget(key)
        self._written.pop(key, None)
        self._removals.forget(key)
        self._parts.applier.forget(key)
        self._parts.recorder.forget(key)
        self._parts.metrics.forget(key)

    def assembly(self, budget: str) -> Assembly:
        """The budget as the world shows it now."""
        return assemble(self._parts.world.members(budget))

    def horizon(self, group: Group) -> float:
        """How long a new pod of these queues takes to start."""
        return self._gatherer.start_seconds([member.key for member in group.members])

    async def reconcile(self, budget: str, assembly: Assembly, sight: Sight | None) -> float:
        """Returns in how many seconds to look again. Raises ApiError, StoreError,
        NotLeading."""
        trouble: LlmqueueError | None = None
        for view in self._parts.world.members(budget):
            if view.key in assembly.refused:
                self._parts.metrics.unplan(view.key)
                try:
                    await self._report(view, budget, None, sight, (assembly.refused[view.key],))
                except ApiError as exc:
                    trouble = exc  # those that take part are not held up
        group = assembly.group
        if group is None or sight is None:
            self._memories.pop(budget, None)
            self._parts.lookout.forget(budget)
            if trouble is not None:
                raise trouble
            return QUIET_SECONDS
        planned_at = self._parts.clock()
        made = self._plan(group, sight, planned_at)
        if made.reconfigure:
            self._parts.lookout.forget(budget)
        plans = {each.queue: each for each in made.queues}
        self._parts.check()
        trouble = await self._mark(group, made, sight) or trouble
        for member in group.members:
            try:
                await self._carry_out(member, group, plans[member.key], sight, planned_at)
            except ApiError as exc:
                trouble = exc  # the other members' turn comes first
        if trouble is not None:
            raise trouble
        return TICK_SECONDS if self._busy(group, made, sight) else QUIET_SECONDS

    def _plan(self, group: Group, sight: Sight, now: float) -> Plan:
        snapshot = self._gatherer.gather(group, sight, time.time())
        connection, memory = self._memories.get(group.name, ("", None))
        if memory is None or connection != group.connection:
            memory = self._gatherer.seed(group, snapshot, now)
        known = {member.key for member in group.members}
        memory = self._gatherer.seed_new(group, snapshot, memory, now)
        if was_reset(snapshot, memory):
            self._parts.metrics.resets.update(member.key for member in group.members)
        made = plan(snapshot, memory, now)
        kept = {key: each for key, each in made.memory.queues.items() if key in known}
        self._memories[group.name] = group.connection, replace(made.memory, queues=kept)
        return made

    async def _mark(self, group: Group, made: Plan, sight: Sight) -> LlmqueueError | None:
        """Drain marks first, so that nobody leaves who could still be handed a job.

        A store that fails is told afterwards: what rests on no mark is done all the same.
        """
        if sight.snapshot is None:
            return None
        try:
            store = await self._parts.connections.store(group.connection)
            for each in made.queues:
                await store.mark_drain(each.queue, each.mark, seconds=DRAIN_MARK_SECONDS)
                await store.unmark_drain(each.queue, each.unmark)
                await self._write_plan(store, each)
        except LlmqueueError as exc:
            return exc
        return None

    async def _write_plan(self, store: RedisStore, each: QueuePlan) -> None:
        """For command line and gateway: decisions at once, numbers every few seconds."""
        fields, now = store_plan_fields(each), self._parts.clock()
        before = self._written.get(each.queue)
        if before is not None:
            same = all(before.fields[n] == fields[n] for n in ("desired", "replicas", "bound_by"))
            if before.fields == fields or (same and now - before.at < _PLAN_SECONDS):
                return
        try:
            await store.write_plan(each.queue, fields)
        except QueueFull:
            return  # Redis is out of memory: scaling, which may free some, must go on
        self._written[each.queue] = _Written(fields, now)

    async def _carry_out(
        self, member: Member, group: Group, made: QueuePlan, sight: Sight, planned_at: float
    ) -> None:
        applier, extra = self._parts.applier, list(group.conflicts)
        # A refused template must not keep a working Deployment from being scaled.
        troubles = (
            await self._ensure(member, made),
            await applier.scale(member, made, planned_at),
            sight.problem,
        )
        extra += [found for found in troubles if found is not None]
        extra += self._look_at_pods(member, made)
        self._parts.recorder.plan(member.view, made)
        for path in unserved_fields(member.resource):
            self._parts.recorder.once(
                member.view, path, "FieldNotServed", f"{path} has no effect in this version"
            )
        if self._parts.world.is_there(member.view):
            pauses = self._pauses(member, sight)
            self._parts.metrics.planned(member, made, sight.snapshot, pauses)
        await self._report(member.view, group.name, made, sight, tuple(extra))

    def _pauses(self, member: Member, sight: Sight) -> list[PauseView]:
        """Those that concern the queue."""
        if sight.snapshot is None or not sight.snapshot.pauses:
            return []
        return pauses_of(self._gatherer.credential(member.key, sight), sight.snapshot)

    def _look_at_pods(self, member: Member, made: QueuePlan) -> list[Condition]:
        """Count those that went unasked; say why none comes."""
        world, key = self._parts.world, member.key
        pods = list(world.pods.get(key, {}).values())
        count = self._removals.unplanned(key, pods, made.remove, rolling=is_rolling(pods))
        if count:
            self._parts.metrics.unplanned[key] += count
            _log.warning("unplanned-removals", queue=key, pods=count)
        found = obstacle(made, world.deployments.get(key), pods, time.time())
        return [found] if found else []

    async def _ensure(self, member: Member, made: QueuePlan) -> Condition | None:
        settings = self._parts.settings
        try:
            document = worker_deployment(
                member.resource,
                image=settings.worker_image,
                pull_policy=settings.worker_pull_policy,
                redis=self._parts.connections.worker_redis(member.resource),
                log_level=settings.worker_log_level,
            )
        except UnusableConnection as exc:
            return Condition(
                ConditionType.STORE_AVAILABLE, False, Reason.CONNECTION_UNUSABLE, str(exc)
            )
        except InvalidResource as exc:
            return Condition(ConditionType.READY, False, Reason.INVALID_SPEC, str(exc))
        return await self._parts.applier.ensure(member, document, made.replicas)

    async def _report(
        self,
        view: QueueView,
        budget: str,
        made: QueuePlan | None,
        sight: Sight | None,
        extra: tuple[Condition, ...],
    ) -> None:
        snapshot = sight.snapshot if sight else None
        seen = next((q for q in snapshot.queues if q.queue == view.key), None) if snapshot else None
        now = datetime.now(UTC)
        facts = Facts(view.generation, budget, made, seen, extra)
        status = status_of(facts, view.status, now)
        if not worth_writing(status, view.status, now):
            self._tell(view, view.status)
            return
        self._parts.check()
        namespace, name = view.key.split("/", 1)
        before = view.status
        await self._parts.cluster.write_status(namespace, name, view.uid, status)
        self._parts.world.wrote_status(view, status)
        self._tell(view, status)
        self._parts.recorder.conditions(view, before, status)

    def _tell(self, view: QueueView, status: Mapping[str, Any]) -> None:
        """What went while it was written was forgotten, and nobody would do so again."""
        if self._parts.world.is_there(view):
            self._parts.metrics.reported(view.key, status)

    def _busy(self, group: Group, made: Plan, sight: Sight) -> bool:
        """Whether anything may change within the next seconds by itself."""
        if sight.snapshot is None or sight.snapshot.pauses or made.reconfigure:
            return True
        if any(q.states.get(state, 0) for q in sight.snapshot.queues for state in _LIVE):
            return True
        return any(
            each.replicas or each.target or self._parts.world.pods.get(each.queue)
            for each in made.queues
        )
