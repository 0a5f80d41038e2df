"""What this process counts. Plain numbers on the way of each job; Prometheus only at a scrape.

Facts of jobs, tokens and money come from the store: a worker vanishes between two scrapes.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from llmqueue import __version__
from llmqueue.families import Samples, counter, gauge, histogram, registry_of
from llmqueue.states import OutcomeClass, RefusalReason, WaitReason
from llmqueue.store.meters import Distribution

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

    from llmqueue_worker.batching import Batcher
    from llmqueue_worker.inflight import InFlight

PREFIX = "worker_"
BUCKETS_SECONDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 60.0, 120.0, 240.0, 600.0)


class Stats:
    """Counts of one process. `clock` is monotonic."""

    def __init__(self, in_flight: InFlight, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.in_flight = in_flight
        self._clock = clock
        self.calls: Counter[OutcomeClass] = Counter()
        self.durations = [0] * (len(BUCKETS_SECONDS) + 1)
        self.duration_sum = 0.0
        self.refused: Counter[RefusalReason | str] = Counter()
        self.verdicts: Counter[str] = Counter()
        self.claims: Counter[WaitReason | str] = Counter()
        self.granted = 0
        self.claim_failures = 0
        self.beats = 0
        self.beat_failures = 0
        self.leases_lost = 0
        self.batchers: Mapping[str, Batcher[Any, Any]] = {}
        self.last_claim_at: float | None = None

    @property
    def ready(self) -> bool:
        """A claim was answered: stays true."""
        return self.last_claim_at is not None

    def claimed(self, granted: int, reason: WaitReason | None) -> None:
        self.last_claim_at = self._clock()
        self.granted += granted
        self.claims[reason or "filled"] += 1

    def called(self, kind: OutcomeClass, seconds: float) -> None:
        self.calls[kind] += 1
        self.durations[bisect_left(BUCKETS_SECONDS, seconds)] += 1
        self.duration_sum += seconds

    @property
    def last_claim_age(self) -> float | None:
        return None if self.last_claim_at is None else self._clock() - self.last_claim_at


class Exporter:
    """Prometheus' view of the stats; a collector of a registry of its own."""

    def __init__(self, stats: Stats) -> None:
        self._stats = stats

    def collect(self) -> Iterator[Metric]:
        stats = self._stats
        yield from self._gauges()
        yield _counter("calls", "Finished attempts by outcome class.", "outcome", stats.calls)
        yield self._durations()
        yield _counter("sent_refused", "Calls that must not leave.", "reason", stats.refused)
        yield _counter("settled", "Acknowledged settles by verdict.", "verdict", stats.verdicts)
        yield _counter("claims", "Answered claims; `filled` = all slots.", "reason", stats.claims)
        for name, text, value in (
            ("granted", "Jobs handed to this process.", stats.granted),
            ("claim_failures", "Claims without an answer.", stats.claim_failures),
            ("heartbeats", "Answered heartbeats.", stats.beats),
            ("heartbeat_failures", "Heartbeats without an answer.", stats.beat_failures),
            ("leases_lost", "Leases that were taken away.", stats.leases_lost),
        ):
            yield counter(PREFIX + name, text, {(): value})
        batchers = stats.batchers
        for name, text, values in (
            ("store_batches", "Answered scripts.", {k: b.batches for k, b in batchers.items()}),
            ("store_batched_items", "Items in them.", {k: b.items for k, b in batchers.items()}),
            ("store_retries", "Failed scripts.", {k: b.failures for k, b in batchers.items()}),
        ):
            yield _counter(name, text, "request", values)

    def _gauges(self) -> Iterator[Metric]:
        stats = self._stats
        yield gauge(PREFIX + "info", "1, with the version.", {(__version__,): 1}, "version")
        yield gauge(PREFIX + "slots", "Attempts at once.", {(): stats.in_flight.slots})
        yield gauge(PREFIX + "in_flight", "Attempts held.", {(): len(stats.in_flight)})
        if (age := stats.last_claim_age) is not None:
            yield gauge(
                PREFIX + "last_claim_age_seconds",
                "Since the last answered claim; absent before the first.",
                {(): age},
            )

    def _durations(self) -> Metric:
        stats = self._stats
        durations = Distribution(BUCKETS_SECONDS, tuple(stats.durations), stats.duration_sum)
        return histogram(
            PREFIX + "attempt_duration_seconds",
            "From the grant to the end of the call.",
            {(): durations},
        )


def _counter(name: str, text: str, label: str, values: Mapping[Any, int]) -> Metric:
    # A copy: the loop counts on while this is read.
    counts: Samples = {(str(value),): count for value, count in list(values.items())}
    return counter(PREFIX + name, text, counts, label)


def registry(stats: Stats) -> CollectorRegistry:
    """A registry that holds these metrics and those of the process (memory, CPU, start)."""
    return registry_of(Exporter(stats))
