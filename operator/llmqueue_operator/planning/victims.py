"""Which workers go when there are more than the target, without ever cutting a call.

choose → mark → read back in the next snapshot → remove what is marked and idle there. A worker that
got work meanwhile is busy in that snapshot and so falls behind an idle one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from llmqueue_operator.planning.types import PodPhase, QueueInput
from llmqueue_operator.planning.workforce import Member, Standing, Workforce

MARK_MARGIN_SECONDS = 5.0
"""A mark that lapses sooner is renewed first: it must outlive the removal."""


@dataclass(frozen=True, slots=True)
class Dismissal:
    """Workers to mark and unmark, pod uids to remove, and what the runner shall ask for."""

    mark: tuple[str, ...]
    unmark: tuple[str, ...]
    remove: tuple[str, ...]
    replicas: int
    draining: int


def dismiss(queue: QueueInput, crew: Workforce, target: int) -> Dismissal:
    """Decide who goes so that `target` workers stay."""
    if queue.rolling:
        return _dismiss_during_rollout(queue, crew, target)
    victims = _in_order(crew.present)[: max(0, len(crew.present) - target)]
    remove = tuple(m.pod.uid for m in victims if _may_go(m, crew))
    draining = len(victims) - len(remove)
    return Dismissal(
        mark=_worker_ids(m for m in victims if m.standing is not Standing.COMING),
        unmark=_worker_ids(m for m in crew.marked if m not in victims),
        remove=remove,
        replicas=target + draining,
        draining=draining,
    )


def _dismiss_during_rollout(queue: QueueInput, crew: Workforce, target: int) -> Dismissal:
    """Only pods that have not started may go: two ReplicaSets scale proportionally, so the pods
    that a lower count ends are not the ones we would choose."""
    excess = max(0, queue.replicas - target)
    coming = [m for m in _in_order(crew.present) if m.standing is Standing.COMING][:excess]
    replicas = max(target, queue.replicas - len(coming))
    return Dismissal(
        mark=(),
        unmark=_worker_ids(crew.marked),
        remove=tuple(m.pod.uid for m in coming),
        replicas=replicas,
        draining=replicas - target,
    )


def _in_order(members: list[Member]) -> list[Member]:
    return sorted(members, key=_rank)


def _rank(member: Member) -> tuple[float, bool, bool, float, str]:
    pod = member.pod
    if member.standing is Standing.COMING:
        keep_longer = pod.phase is not PodPhase.FAILED
        return (Standing.COMING, keep_longer, False, pod.age_seconds, pod.uid)
    if member.standing is Standing.IDLE:
        # A pod that is not ready is what a ReplicaSet takes first, whatever its deletion cost.
        return (Standing.IDLE, pod.ready, not member.marked, pod.age_seconds, pod.uid)
    # Marked first: it has stopped taking jobs already, another choice would stop one more.
    return (member.standing, not member.marked, True, member.remaining_seconds, pod.uid)


def _may_go(member: Member, crew: Workforce) -> bool:
    if member.standing is Standing.COMING:
        return True
    if member.standing is not Standing.IDLE or member.beat is None:
        return False
    # While a busy pod is not ready, a lower count would end that one instead.
    exposed = any(m.in_flight > 0 and not m.pod.ready for m in crew.present)
    return member.beat.drain_seconds >= MARK_MARGIN_SECONDS and not exposed


def _worker_ids(members: Iterable[Member]) -> tuple[str, ...]:
    return tuple(sorted(m.beat.worker for m in members if m.beat))
