"""Pods joined with heartbeats: who can take jobs, who is idle, who is on the way in or out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from llmqueue.store.snapshots import WorkerView
from llmqueue_operator.planning.types import PodPhase, PodView

STALE_SECONDS = 10.0
"""A heartbeat this old says nothing of what its worker does now."""

NOT_SEEN_SECONDS = 30.0
"""A running pod that the store has not seen for so long counts as not started."""


class Standing(IntEnum):
    """What a pod is to the plan, in the order in which pods may go."""

    COMING = 0
    """Not started, failed, or running but not in the store: takes no job."""
    IDLE = 1
    BUSY = 2
    SILENT = 3
    """Its heartbeat is late: it may be running a call."""
    LEAVING = 4
    """Already ending; neither capacity nor a candidate."""


@dataclass(frozen=True, slots=True)
class Member:
    """A pod, the latest heartbeat of its uid (None: none), and its standing."""

    pod: PodView
    beat: WorkerView | None
    standing: Standing

    @property
    def marked(self) -> bool:
        return self.beat is not None and self.beat.drain_seconds > 0

    @property
    def in_flight(self) -> int:
        return self.beat.in_flight if self.beat else 0

    @property
    def remaining_seconds(self) -> float:
        if self.standing is Standing.SILENT or self.beat is None:
            return math.inf
        return self.beat.longest_remaining_seconds


@dataclass(frozen=True, slots=True)
class Workforce:
    """The pods of one queue. Heartbeats without a pod are not in it: they are no capacity."""

    members: tuple[Member, ...]

    @property
    def present(self) -> list[Member]:
        """All that are not ending."""
        return [m for m in self.members if m.standing is not Standing.LEAVING]

    @property
    def marked(self) -> list[Member]:
        return [m for m in self.present if m.marked]

    @property
    def taking_jobs(self) -> int:
        working = (Standing.IDLE, Standing.BUSY, Standing.SILENT)
        return sum(m.standing in working and not m.marked for m in self.members)

    @property
    def leaving_in_flight(self) -> int:
        return sum(m.in_flight for m in self.members if m.standing is Standing.LEAVING)

    @property
    def draining_in_flight(self) -> int:
        return self.leaving_in_flight + sum(m.in_flight for m in self.marked)

    @property
    def failing(self) -> list[Member]:
        return [m for m in self.members if m.pod.phase is PodPhase.FAILED]

    @property
    def not_seen(self) -> list[Member]:
        """Running for 30 s, and not in the store."""
        return [
            m
            for m in self.members
            if m.standing is Standing.COMING
            and m.pod.phase is PodPhase.RUNNING
            and m.pod.age_seconds > NOT_SEEN_SECONDS
        ]


def muster(pods: Sequence[PodView], workers: Iterable[WorkerView], *, blind: bool) -> Workforce:
    """Join by uid; of several start nonces the youngest heartbeat counts.

    `blind`: the store was away until just now, so a late heartbeat proves nothing.
    """
    latest: dict[str, WorkerView] = {}
    for worker in workers:
        uid = worker.worker.partition(":")[0]
        if uid not in latest or worker.age_seconds < latest[uid].age_seconds:
            latest[uid] = worker
    return Workforce(
        tuple(
            Member(pod, beat, _standing(pod, beat, blind))
            for pod in pods
            for beat in (latest.get(pod.uid),)
        )
    )


def _standing(pod: PodView, beat: WorkerView | None, blind: bool) -> Standing:
    if pod.phase is PodPhase.TERMINATING:
        return Standing.LEAVING
    started = pod.phase is PodPhase.RUNNING
    if beat is None:
        return Standing.SILENT if blind and started else Standing.COMING
    if beat.in_flight > 0:
        return Standing.BUSY if beat.age_seconds <= STALE_SECONDS else Standing.SILENT
    if pod.phase is PodPhase.FAILED:
        return Standing.COMING
    if beat.age_seconds <= STALE_SECONDS:
        return Standing.IDLE
    if started and (blind or beat.age_seconds <= NOT_SEEN_SECONDS):
        return Standing.SILENT
    return Standing.COMING
