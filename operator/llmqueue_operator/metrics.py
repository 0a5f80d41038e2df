"""What this replica exports. Facts of queues are the leader's: a follower exports none.

Plain numbers where things happen; Prometheus only at a scrape.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from llmqueue.documents import objects_at
from llmqueue.job import BAND_NAMES
from llmqueue.store.snapshots import BudgetSnapshot, QueueSnapshot
from llmqueue_operator.groups import Member
from llmqueue_operator.planning import QueuePlan

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

PREFIX = "llmqueue_"
BUCKETS_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


_PLANNED: tuple[tuple[str, str, Callable[[QueuePlan], float]], ...] = (
    ("workers_desired", "Workers that should take jobs.", lambda p: p.target),
    ("workers_actual", "Workers that take jobs.", lambda p: p.actual),
    ("workers_draining", "Workers that finish and go.", lambda p: p.draining),
    ("replicas", "Pods that are asked for.", lambda p: p.replicas),
    ("effective_requests_per_minute", "What the budget allows.", lambda p: p.effective_rpm),
    ("slot_seconds", "Time that a job occupies a slot.", lambda p: p.slot_seconds),
)


_SEEN: tuple[tuple[str, str, Callable[[QueueSnapshot], float]], ...] = (
    ("oldest_ready_seconds", "Age of the oldest job that waits.", lambda q: q.oldest_ready_seconds),
    ("jobs_held_back", "Ready jobs that limits of tenants and bands keep.", lambda q: q.held_back),
    ("tenants_waiting", "Tenants with ready jobs.", lambda q: q.tenants_waiting),
    ("tenants_parked", "Of these, those at a limit of their own.", lambda q: q.tenants_parked),
)
_BY_BAND: tuple[tuple[str, str, Callable[[QueueSnapshot], Sequence[int]]], ...] = (
    ("jobs_ready", "Ready jobs by priority class.", lambda q: q.ready_by_band),
    ("jobs_in_flight", "Jobs with workers by priority class.", lambda q: q.in_flight_by_band),
)


@dataclass(frozen=True, slots=True)
class _Queue:
    namespace: str
    name: str
    plan: QueuePlan
    seen: QueueSnapshot | None
    snapshot: BudgetSnapshot | None


class Metrics:
    """Counts of one operator process."""

    def __init__(self) -> None:
        self.leading = False
        self.reconciles: Counter[str] = Counter()
        self.durations = [0] * (len(BUCKETS_SECONDS) + 1)
        self.duration_sum = 0.0
        self.unplanned: Counter[str] = Counter()
        """Key → pods that went without having been chosen."""
        self._queues: dict[str, _Queue] = {}
        self._conditions: dict[str, tuple[tuple[str, str, bool], ...]] = {}

    def reconciled(self, result: str, seconds: float) -> None:
        """`result`: succeeded, failed or refused (no longer leading)."""
        self.reconciles[result] += 1
        self.durations[bisect_left(BUCKETS_SECONDS, seconds)] += 1
        self.duration_sum += seconds

    def planned(self, member: Member, plan: QueuePlan, snapshot: BudgetSnapshot | None) -> None:
        seen = None
        if snapshot is not None:
            seen = next((q for q in snapshot.queues if q.queue == member.key), None)
        namespace, name = member.key.split("/", 1)
        self._queues[member.key] = _Queue(namespace, name, plan, seen, snapshot)

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
            self._conditions.clear()
        else:
            self._queues.pop(key, None)
            self._conditions.pop(key, None)
            self.unplanned.pop(key, None)

    def conditions(self) -> Mapping[str, tuple[tuple[str, str, bool], ...]]:
        return dict(self._conditions)

    def queues(self) -> Mapping[str, _Queue]:
        return dict(self._queues)


class Exporter:
    """Prometheus' view; a collector of a registry of its own."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        yield from self._process()
        yield from self._planned()
        yield from self._jobs()
        yield from self._conditions()

    def _process(self) -> Iterator[Metric]:
        from prometheus_client.metrics_core import (  # noqa: PLC0415
            CounterMetricFamily,
            GaugeMetricFamily,
            HistogramMetricFamily,
        )

        metrics = self._metrics
        yield GaugeMetricFamily(
            PREFIX + "operator_leading", "1 where this replica acts.", float(metrics.leading)
        )
        counted = CounterMetricFamily(
            PREFIX + "operator_reconciles", "Reconciled budgets by result.", labels=["result"]
        )
        for result, count in dict(metrics.reconciles).items():
            counted.add_metric([result], count)
        yield counted
        total, buckets = 0, list[tuple[str, float]]()
        for bound, count in zip(
            [*map(str, BUCKETS_SECONDS), "+Inf"], metrics.durations, strict=True
        ):
            total += count
            buckets.append((bound, total))
        yield HistogramMetricFamily(
            PREFIX + "operator_reconcile_duration_seconds",
            "Time to plan and apply one budget.",
            buckets=buckets,
            sum_value=metrics.duration_sum,
        )
        removed = CounterMetricFamily(
            PREFIX + "unplanned_removals",
            "Worker pods that went without having been chosen.",
            labels=["namespace", "queue"],
        )
        for key, count in dict(metrics.unplanned).items():
            removed.add_metric(key.split("/", 1), count)
        yield removed

    def _gauge(self, name: str, text: str, values: Mapping[tuple[str, ...], float],
               *labels: str) -> Metric:  # fmt: skip
        from prometheus_client.metrics_core import GaugeMetricFamily  # noqa: PLC0415

        family = GaugeMetricFamily(PREFIX + name, text, labels=["namespace", "queue", *labels])
        for key, value in values.items():
            family.add_metric(list(key), value)
        return family

    def _planned(self) -> Iterator[Metric]:
        queues = self._metrics.queues().values()
        for name, text, number in _PLANNED:
            yield self._gauge(name, text, {(q.namespace, q.name): number(q.plan) for q in queues})
        yield self._gauge(
            "limit",
            "A limit of the queue's budget: declared, effective (as the provider taught), used.",
            {
                (q.namespace, q.name, limit.name, kind): float(value)
                for q in queues
                for limit in (q.snapshot.limits if q.snapshot else ())
                for kind, value in (
                    ("declared", limit.declared),
                    ("effective", limit.effective),
                    ("used", limit.used),
                )
            },
            "limit",
            "kind",
        )
        yield self._gauge(
            "bound_by",
            "1 for what limits the number of workers.",
            {(q.namespace, q.name, str(q.plan.bound_by)): 1.0 for q in queues},
            "limit",
        )

    def _jobs(self) -> Iterator[Metric]:
        queues = [(q, q.seen) for q in self._metrics.queues().values()]
        yield self._gauge(
            "jobs",
            "Jobs by state.",
            {
                (q.namespace, q.name, str(state)): float(count)
                for q, seen in queues
                if seen is not None
                for state, count in seen.states.items()
            },
            "state",
        )
        for name, text, number in _SEEN:
            yield self._gauge(
                name, text, {(q.namespace, q.name): number(seen) for q, seen in queues if seen}
            )
        for name, text, by_band in _BY_BAND:
            yield self._gauge(
                name,
                text,
                {
                    (q.namespace, q.name, band): float(count)
                    for q, seen in queues
                    if seen is not None
                    for band, count in zip(BAND_NAMES, by_band(seen), strict=False)
                },
                "band",
            )

    def _conditions(self) -> Iterator[Metric]:
        yield self._gauge(
            "condition",
            "1 where a condition of the queue is true, else 0.",
            {
                (*key.split("/", 1), kind, reason): float(holds)
                for key, conditions in self._metrics.conditions().items()
                for kind, reason, holds in conditions
            },
            "type",
            "reason",
        )


def registry(metrics: Metrics) -> CollectorRegistry:
    """A registry that holds these metrics and those of the process."""
    from prometheus_client import CollectorRegistry, ProcessCollector  # noqa: PLC0415

    found = CollectorRegistry()
    found.register(Exporter(metrics))
    ProcessCollector(registry=found)
    return found
