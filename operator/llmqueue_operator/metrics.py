"""What this replica counts and has seen. Facts of queues are the leader's: a follower has none.

Plain numbers where things happen; exporter.py makes Prometheus' objects of them at a scrape.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from llmqueue.documents import objects_at
from llmqueue.errors import LlmqueueError, StoreRefused, StoreUnavailable
from llmqueue.store.meters import Meters, grown
from llmqueue.store.snapshots import BudgetSnapshot, PauseView, QueueSnapshot
from llmqueue_operator.groups import Member
from llmqueue_operator.planning import QueuePlan

BUCKETS_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
LOOK_HOLDS_SECONDS = 60.0
"""What a look found is over after this: no LLMQueue may use the connection any more."""


class StoreProblem(StrEnum):
    """Why a Redis connection cannot be used."""

    UNREACHABLE = "unreachable"
    """Or not ready, or out of memory: it may pass by itself."""
    MISCONFIGURED = "misconfigured"
    """Settings of the connection or of its server: a person must act."""
    REFUSED = "refused"
    """Password or rights: a person must act."""

    @classmethod
    def of(cls, error: LlmqueueError) -> StoreProblem:
        if isinstance(error, StoreRefused):
            return cls.REFUSED
        return cls.UNREACHABLE if isinstance(error, StoreUnavailable) else cls.MISCONFIGURED


@dataclass(frozen=True, slots=True)
class SeenQueue:
    """A queue that was planned. `planned_at` by the monotonic clock."""

    namespace: str
    name: str
    plan: QueuePlan
    planned_at: float
    max_jobs: int
    max_bytes: int | None
    seen: QueueSnapshot | None
    """None while the store does not show it: then nothing is known."""
    snapshot: BudgetSnapshot | None
    pauses: tuple[PauseView, ...]
    """Of those in the snapshot, the ones that concern this queue."""
    meters: Meters | None
    """What was counted stays counted: while the store is away, and when a failover lost some."""

    @property
    def labels(self) -> tuple[str, str]:
        return self.namespace, self.name

    @property
    def heartbeat_age_seconds(self) -> float | None:
        """Of the worker that was silent for longest; None where the store knows none."""
        workers = self.snapshot.workers if self.snapshot else ()
        key = f"{self.namespace}/{self.name}"
        return max((w.age_seconds for w in workers if w.queue == key), default=None)


@dataclass(frozen=True, slots=True)
class _Counted:
    """Meters as a store of this `epoch` had them last, and as they are shown."""

    epoch: str | None
    seen: Meters
    shown: Meters


@dataclass(frozen=True, slots=True)
class SeenStore:
    """A Redis connection. Budgets are looked at all the time, its settings now and then."""

    looked: StoreProblem | None = None
    looked_at: float = 0.0
    checked: StoreProblem | None = None
    warnings: int = 0

    @property
    def problem(self) -> StoreProblem | None:
        return self.checked or self.looked


class Metrics:
    """Counts of one operator process. `clock` is monotonic."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.leading = False
        # From 0 on, so that the first failure is an increase.
        self.reconciles = Counter({"succeeded": 0, "failed": 0, "refused": 0})
        self.durations = [0] * (len(BUCKETS_SECONDS) + 1)
        self.duration_sum = 0.0
        self.unplanned: Counter[str] = Counter()
        """Key → pods that went without having been chosen."""
        self.resets: Counter[str] = Counter()
        """Key → how often the store lost the configuration that it had."""
        self._queues: dict[str, SeenQueue] = {}
        self._meters: dict[str, _Counted] = {}
        self._conditions: dict[str, tuple[tuple[str, str, bool], ...]] = {}
        self._stores: dict[str, SeenStore] = {}

    def reconciled(self, result: str, seconds: float) -> None:
        """`result`: succeeded, failed or refused (no longer leading)."""
        self.reconciles[result] += 1
        self.durations[bisect_left(BUCKETS_SECONDS, seconds)] += 1
        self.duration_sum += seconds

    # ------------------------------------------------------------ queues

    def planned(
        self,
        member: Member,
        plan: QueuePlan,
        snapshot: BudgetSnapshot | None,
        pauses: Sequence[PauseView] = (),
    ) -> None:
        seen = None
        if snapshot is not None:
            seen = next((q for q in snapshot.queues if q.queue == member.key), None)
        if seen is not None and snapshot is not None and seen.meters is not None:
            self._count(member.key, snapshot.epoch, seen.meters)
        known = self._meters.get(member.key)
        namespace, name = member.key.split("/", 1)
        self._queues[member.key] = SeenQueue(
            namespace,
            name,
            plan,
            self._clock(),
            member.config.max_jobs,
            member.config.max_bytes,
            seen,
            snapshot,
            tuple(pauses),
            known.shown if known else None,
        )

    def _count(self, key: str, epoch: str | None, seen: Meters) -> None:
        before = self._meters.get(key)
        if before is None or before.epoch != epoch:
            self._meters[key] = _Counted(epoch, seen, seen)
        elif before.seen != seen:
            self._meters[key] = _Counted(epoch, seen, grown(before.shown, before.seen, seen))

    def reported(self, key: str, status: Mapping[str, Any]) -> None:
        """What stands in the queue's status."""
        self._conditions[key] = tuple(
            (str(c["type"]), str(c["reason"]), c["status"] == "True")
            for c in objects_at(status, "conditions")
        )

    def unplan(self, key: str) -> None:
        """The queue cannot take part any more."""
        self._queues.pop(key, None)

    def forget(self, key: str | None = None) -> None:
        """A queue is gone, or this replica leads no more."""
        if key is None:
            self._queues.clear()
            self._meters.clear()
            self._conditions.clear()
            self._stores.clear()
        else:
            self._queues.pop(key, None)
            self._meters.pop(key, None)
            self._conditions.pop(key, None)
            self.unplanned.pop(key, None)
            self.resets.pop(key, None)

    def conditions(self) -> Mapping[str, tuple[tuple[str, str, bool], ...]]:
        return dict(self._conditions)

    def queues(self) -> Mapping[str, SeenQueue]:
        return dict(self._queues)

    def age_seconds(self, queue: SeenQueue) -> float:
        """Since it was planned."""
        return self._clock() - queue.planned_at

    # ------------------------------------------------------------ Redis connections

    def looked_at_store(self, connection: str, error: LlmqueueError | None) -> None:
        """Budgets on it were looked at; one that answers can be reached."""
        known = self._stores.get(connection, SeenStore())
        problem = StoreProblem.of(error) if error else None
        checked = known.checked
        if problem is None and checked is StoreProblem.UNREACHABLE:
            checked = None
        self._stores[connection] = replace(
            known, looked=problem, looked_at=self._clock(), checked=checked
        )

    def checked_store(
        self, connection: str, error: LlmqueueError | None, *, warnings: int | None = None
    ) -> None:
        """Its settings were looked at. `warnings` None: it told none, those of before hold."""
        known = self._stores.get(connection, SeenStore())
        problem, looked = StoreProblem.of(error) if error else None, known.looked
        if problem is None and self._clock() - known.looked_at > LOOK_HOLDS_SECONDS:
            looked = None
        self._stores[connection] = replace(
            known,
            looked=looked,
            checked=problem,
            warnings=known.warnings if warnings is None else warnings,
        )

    def keep_stores(self, connections: Iterable[str]) -> None:
        """Those that are in the settings; what is said of others is over."""
        wanted = set(connections)
        for name in self._stores.keys() - wanted:
            del self._stores[name]

    def stores(self) -> Mapping[str, SeenStore]:
        return dict(self._stores)
