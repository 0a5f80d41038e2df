"""What the world and the store show of a budget → the planner's snapshot and memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from llmqueue.states import LimitUnit
from llmqueue_operator.groups import Group, Member
from llmqueue_operator.lookout import Sight
from llmqueue_operator.planning import (
    GroupSnapshot,
    Memory,
    PodPhase,
    QueueInput,
    Remembered,
    seed,
)
from llmqueue_operator.views import DeploymentView, PodState
from llmqueue_operator.world import World

START_GUESS_SECONDS = 10.0
_FIRST_READY_SECONDS = 60.0
"""A container that became ready later than this had been ready before."""
_FRESH_SECONDS = 10.0
"""A heartbeat older than this may have been sent with another key."""
_NEWEST = 5
"""Pods whose start is averaged."""


class Gatherer:
    """Joins LLMQueues with their Deployments and pods."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._start_seconds: dict[str, float] = {}

    def forget(self, key: str) -> None:
        """A queue that is gone."""
        self._start_seconds.pop(key, None)

    def gather(self, group: Group, sight: Sight, now: float) -> GroupSnapshot:
        """`now` in Unix seconds: pods' ages are counted by it."""
        return GroupSnapshot(
            budget=group.name,
            limits=group.budget.limits,
            max_in_flight=group.budget.max_in_flight,
            queues=tuple(
                replace(self._input(member, now), credential=self.credential(member.key, sight))
                for member in group.members
            ),
            store=sight.snapshot,
            store_error=sight.error,
            store_age_seconds=sight.away_seconds,
        )

    def _input(self, member: Member, now: float) -> QueueInput:
        pods = list(self._world.pods.get(member.key, {}).values())
        found = self._world.deployments.get(member.key)
        ours = found is not None and found.owner == member.view.uid
        return QueueInput(
            queue=member.key,
            scaling=replace(member.scaling, pod_start_seconds=self._start(member.key, pods)),
            weight=member.config.weight,
            pods=tuple(pod.view(now) for pod in pods),
            replicas=found.replicas if found and ours else 0,
            rolling=found is not None and not found.overdue and is_rolling(pods),
            expected_charge={LimitUnit.REQUESTS: 1.0},
        )

    def credential(self, key: str, sight: Sight) -> str:
        """The key that this queue's workers use; empty where they are at odds, or none is there."""
        if sight.snapshot is None:
            return ""
        pods = self._world.pods.get(key, {})
        found = {
            worker.credential
            for worker in sight.snapshot.workers
            if worker.worker.partition(":")[0] in pods and worker.age_seconds <= _FRESH_SECONDS
        }
        return found.pop() if len(found) == 1 else ""

    def _start(self, key: str, pods: list[PodState]) -> float:
        """How long pods took lately from being asked for to being ready."""
        newest = sorted(pods, key=lambda pod: pod.created_at, reverse=True)
        times = [took for pod in newest if (took := _start_of(pod)) is not None][:_NEWEST]
        if times:
            self._start_seconds[key] = max(1.0, sum(times) / len(times))
        return self._start_seconds.get(key, START_GUESS_SECONDS)

    def start_seconds(self, keys: Iterable[str]) -> float:
        """The longest time that a pod of one of these queues took lately."""
        return max((self._start_seconds.get(k, START_GUESS_SECONDS) for k in keys), default=0.0)

    # ------------------------------------------------------------ memory

    def seed(self, group: Group, snapshot: GroupSnapshot, now: float) -> Memory:
        """After a start or a change of leader: nothing may move because of it. `now` monotonic."""
        epoch = snapshot.store.epoch if snapshot.store else None
        return seed(snapshot.queues, self._remembered(group), epoch=epoch, now=now)

    def seed_new(self, group: Group, snapshot: GroupSnapshot, memory: Memory, now: float) -> Memory:
        """Queues that the memory does not know yet."""
        new = [queue for queue in snapshot.queues if queue.queue not in memory.queues]
        if not new:
            return memory
        seeded = seed(new, self._remembered(group), epoch=memory.epoch, now=now)
        return replace(memory, queues={**memory.queues, **seeded.queues})

    def _remembered(self, group: Group) -> dict[str, Remembered]:
        return {
            member.key: _remembered(member, self._world.deployments.get(member.key))
            for member in group.members
        }


def _start_of(pod: PodState) -> float | None:
    """From its creation to its first readiness; None where it is not ready, or again."""
    if pod.ready_at is None or pod.started_at is None:
        return None
    if pod.ready_at - pod.started_at > _FIRST_READY_SECONDS:
        return None
    return pod.ready_at - pod.created_at


def is_rolling(pods: list[PodState]) -> bool:
    """Pods of two templates: a ReplicaSet of before still has some."""
    staying = {pod.template for pod in pods if pod.phase is not PodPhase.TERMINATING}
    return len(staying) > 1


def _remembered(member: Member, found: DeploymentView | None) -> Remembered:
    """The status says what was wanted; the Deployment is right where it is newer, as long as only
    the scaler writes its replicas."""
    status = member.view.status
    desired, slot = status.get("desired"), status.get("slotMilliseconds")
    foreign = bool(found and found.foreign_scalers)
    if found is None or found.owner != member.view.uid:
        # A namesake's status, or workers that are gone: nothing runs that could be kept.
        desired = 0 if desired is None else desired
    elif not foreign and status.get("replicas") != found.replicas:
        desired = found.replicas
    return Remembered(desired=desired, slot_seconds=slot / 1000 if slot else None)
