"""Prometheus' view of `Metrics`: families that are made at a scrape and dropped after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from llmqueue import __version__
from llmqueue.families import Samples, counter, gauge, histogram, registry_of
from llmqueue.job import BAND_NAMES
from llmqueue.store.meters import Distribution
from llmqueue.store.snapshots import BudgetSnapshot, QueueSnapshot
from llmqueue_operator.exported_meters import QUEUE_LABELS, meter_families
from llmqueue_operator.metrics import BUCKETS_SECONDS, Metrics, SeenQueue, StoreProblem

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

_BREAKER = ("closed", "open", "half-open")
_PAUSES = ("QUOTA", "AUTH", "FORBIDDEN")

_PLANNED: tuple[tuple[str, str, Callable[[SeenQueue], float | None]], ...] = (
    ("workers_desired", "Workers that should take jobs.", lambda q: q.plan.target),
    ("workers_actual", "Workers that take jobs.", lambda q: q.plan.actual),
    ("workers_draining", "Workers that finish and go.", lambda q: q.plan.draining),
    ("replicas", "Pods that are asked for.", lambda q: q.plan.replicas),
    (
        "effective_requests_per_minute",
        "What the budget allows.",
        lambda q: q.plan.effective_rpm,
    ),
    ("slot_seconds", "Time that a job occupies a slot.", lambda q: q.plan.slot_seconds),
    (
        "eta_seconds",
        "Until the backlog is done at the present rate; absent where nothing foretells it.",
        lambda q: q.plan.eta_seconds,
    ),
    ("jobs_limit", "`queue.maxJobs`.", lambda q: q.max_jobs),
    ("stored_bytes_limit", "`queue.maxBytes`; absent where it is not set.", lambda q: q.max_bytes),
    (
        "oldest_heartbeat_seconds",
        "Since the last heartbeat of the worker that is silent longest; absent without workers.",
        lambda q: q.heartbeat_age_seconds,
    ),
)
_SEEN: tuple[tuple[str, str, Callable[[QueueSnapshot], float | None]], ...] = (
    (
        "oldest_ready_seconds",
        "How long the oldest of the jobs that come next has waited.",
        lambda q: q.oldest_ready_seconds,
    ),
    ("jobs_held_back", "Ready jobs that limits of tenants and bands keep.", lambda q: q.held_back),
    ("tenants_waiting", "Tenants with ready jobs.", lambda q: q.tenants_waiting),
    ("tenants_parked", "Of these, those at a limit of their own.", lambda q: q.tenants_parked),
    ("stored_bytes", "Payloads of jobs that have not ended.", lambda q: q.stored_bytes),
    (
        "review_oldest_seconds",
        "How long the oldest job in review is there; absent where none is.",
        lambda q: q.review_oldest_seconds,
    ),
    (
        "last_settle_seconds",
        "Since a job's outcome was recorded; absent before the first.",
        lambda q: q.last_settle_seconds,
    ),
    (
        "estimate_error_ratio",
        "Input tokens of recent calls as a share of the estimated ones; absent before the first.",
        lambda q: q.estimate_ratio,
    ),
)
_OF_BUDGET: tuple[tuple[str, str, Callable[[BudgetSnapshot], float]], ...] = (
    (
        "blocked_seconds",
        "How much longer nothing may be sent after a 429.",
        lambda b: b.blocked_seconds,
    ),
    (
        "rate_factor",
        "Share of the rate that is used now: 1, less while it comes back.",
        lambda b: b.rate_factor,
    ),
)
_BY_BAND: tuple[tuple[str, str, Callable[[QueueSnapshot], Sequence[int]]], ...] = (
    ("jobs_ready", "Ready jobs by priority class.", lambda q: q.ready_by_band),
    ("jobs_in_flight", "Jobs with workers by priority class.", lambda q: q.in_flight_by_band),
)


class Exporter:
    """A collector of a registry of its own."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        queues = self._metrics.queues()
        yield from self._process()
        yield from self._counted(queues)
        yield from self._stores()
        yield from self._planned(list(queues.values()))
        yield from _budgets([q for q in queues.values() if q.seen is not None])
        yield from _jobs([(q, q.seen) for q in queues.values() if q.seen is not None])
        yield from meter_families([(q.labels, q.meters) for q in queues.values() if q.meters])
        yield from self._conditions()

    # ------------------------------------------------------------ this process

    def _process(self) -> Iterator[Metric]:
        metrics = self._metrics
        yield gauge("operator_info", "1, with the version.", {(__version__,): 1.0}, "version")
        yield gauge("operator_leading", "1 where this replica acts.", {(): float(metrics.leading)})
        yield counter(
            "operator_reconciles",
            "Reconciled budgets by result.",
            {(result,): float(count) for result, count in dict(metrics.reconciles).items()},
            "result",
        )
        yield histogram(
            "operator_reconcile_duration_seconds",
            "Time to plan and apply one budget.",
            {(): Distribution(BUCKETS_SECONDS, tuple(metrics.durations), metrics.duration_sum)},
        )

    def _counted(self, queues: Mapping[str, SeenQueue]) -> Iterator[Metric]:
        """From 0 on for each queue, so that the first one is an increase."""
        for name, text, counts in (
            (
                "unplanned_removals",
                "Worker pods that went without having been chosen.",
                self._metrics.unplanned,
            ),
            (
                "store_resets",
                "How often the store lost the queue's configuration while it was known.",
                self._metrics.resets,
            ),
        ):
            samples: Samples = {q.labels: float(counts.get(key, 0)) for key, q in queues.items()}
            yield counter(name, text, samples, *QUEUE_LABELS)

    def _stores(self) -> Iterator[Metric]:
        stores = self._metrics.stores()
        yield gauge(
            "store_up",
            "1 where the last look at a Redis connection succeeded, else 0.",
            {(name,): float(store.problem is None) for name, store in stores.items()},
            "connection",
        )
        yield gauge(
            "store_problem",
            "1 for what is wrong with a Redis connection, 0 for the others.",
            {
                (name, str(reason)): float(store.problem is reason)
                for name, store in stores.items()
                for reason in StoreProblem
            },
            "connection",
            "reason",
        )
        yield gauge(
            "store_warnings",
            "What endangers or slows jobs in a Redis; the log has the sentences.",
            {(name,): float(store.warnings) for name, store in stores.items()},
            "connection",
        )

    # ------------------------------------------------------------ queues

    def _planned(self, queues: Sequence[SeenQueue]) -> Iterator[Metric]:
        for name, text, number in _PLANNED:
            known = ((q, number(q)) for q in queues)
            yield _of_queues(name, text, {q.labels: v for q, v in known if v is not None})
        yield _of_queues(
            "planned_age_seconds",
            "Since the queue was planned; it is planned at least every 10 s.",
            {q.labels: self._metrics.age_seconds(q) for q in queues},
        )
        yield _of_queues(
            "bound_by",
            "1 for what limits the number of workers.",
            {(*q.labels, str(q.plan.bound_by)): 1.0 for q in queues},
            "limit",
        )

    def _conditions(self) -> Iterator[Metric]:
        yield _of_queues(
            "condition",
            "1 where a condition of the queue's status is true, else 0.",
            {
                (*key.split("/", 1), kind, reason): float(holds)
                for key, conditions in self._metrics.conditions().items()
                for kind, reason, holds in conditions
            },
            "type",
            "reason",
        )


def _of_queues(name: str, text: str, values: Samples, *labels: str) -> Metric:
    return gauge(name, text, values, *QUEUE_LABELS, *labels)


def _budgets(queues: Sequence[SeenQueue]) -> Iterator[Metric]:
    """What is said of each queue on a budget alike, but for the pauses."""
    found = [(q.labels, q.snapshot) for q in queues if q.snapshot is not None]
    yield _of_queues(
        "limit",
        "A limit of the queue's budget: declared, effective (as the provider taught), used.",
        {
            (*labels, limit.name, kind): float(value)
            for labels, budget in found
            for limit in budget.limits
            for kind, value in (
                ("declared", limit.declared),
                ("effective", limit.effective),
                ("used", limit.used),
            )
        },
        "limit",
        "kind",
    )
    for name, text, number in _OF_BUDGET:
        yield _of_queues(name, text, {labels: number(budget) for labels, budget in found})
    yield _of_queues(
        "breaker",
        "1 for the state that the budget's breaker is in, 0 for the others.",
        {(*labels, s): float(budget.breaker == s) for labels, budget in found for s in _BREAKER},
        "state",
    )
    yield _of_queues(
        "credential_pauses",
        "Pauses of the key that the queue's workers use.",
        {
            (*q.labels, kind): float(sum(pause.kind == kind for pause in q.pauses))
            for q in queues
            for kind in _PAUSES
        },
        "kind",
    )


def _jobs(queues: Sequence[tuple[SeenQueue, QueueSnapshot]]) -> Iterator[Metric]:
    yield _of_queues(
        "jobs",
        "Jobs by state; of those that have ended, the ones that are still kept.",
        {
            (*q.labels, str(state)): float(count)
            for q, seen in queues
            for state, count in seen.states.items()
        },
        "state",
    )
    for name, text, number in _SEEN:
        known = ((q, number(seen)) for q, seen in queues)
        yield _of_queues(name, text, {q.labels: v for q, v in known if v is not None})
    for name, text, by_band in _BY_BAND:
        yield _of_queues(
            name,
            text,
            {
                (*q.labels, band): float(count)
                for q, seen in queues
                for band, count in zip(BAND_NAMES, by_band(seen), strict=False)
            },
            "band",
        )


def registry(metrics: Metrics) -> CollectorRegistry:
    """A registry that holds these metrics and those of the process."""
    return registry_of(Exporter(metrics))
