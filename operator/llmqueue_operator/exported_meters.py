"""Counters of queues that the store keeps → Prometheus' families."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from llmqueue.families import Samples, counter, histogram
from llmqueue.store.meters import Distribution, Meters

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

QUEUE_LABELS = ("namespace", "queue")
_NANO = 1e9
Label = TypeVar("Label", bound=str)
_SINGLE: tuple[tuple[str, str, Callable[[Meters], int]], ...] = (
    (
        "jobs_enqueued",
        "Jobs that were stored, those that report failures included.",
        lambda m: m.enqueued,
    ),
    ("jobs_granted", "Jobs that were handed to workers, each time they were.", lambda m: m.granted),
    ("jobs_settled", "Outcomes of jobs that were recorded.", lambda m: m.settled),
    ("reviews", "Jobs that went to review.", lambda m: m.reviews),
    ("reclaims", "Leases that ran out: their workers were lost.", lambda m: m.reclaims),
    (
        "fenced_settles",
        "Settles that came after the lease had been taken away; sent calls among them were paid.",
        lambda m: m.fenced,
    ),
    (
        "possible_duplicates",
        "Billed calls of jobs for which an earlier call may have been paid too.",
        lambda m: m.possible_duplicates,
    ),
)
_LABELLED: tuple[tuple[str, str, tuple[str, ...], Callable[[Meters], Samples]], ...] = (
    (
        "calls",
        "Calls that were sent, by their outcome's class.",
        ("model", "outcome"),
        lambda m: m.calls,
    ),
    (
        "tokens",
        "Tokens as billed: input without cached and cache-written, output without reasoning.",
        ("model", "type"),
        lambda m: m.tokens,
    ),
    (
        "cost_usd",
        "Cost as booked in the ledger; what has no price is not in it.",
        ("model",),
        lambda m: {(model,): nano / _NANO for model, nano in m.cost_nano_usd.items()},
    ),
    (
        "unpriced_calls",
        "Billed calls whose price is not known.",
        ("model",),
        lambda m: _one(m.unpriced),
    ),
    (
        "retries",
        "Attempts after which the job waits to run again, by class.",
        ("outcome",),
        lambda m: _one(m.retries),
    ),
    ("jobs_ended", "Jobs that ended, by state.", ("state",), lambda m: _one(m.ended)),
    (
        "dead_letters",
        "Jobs that died, by severity.",
        ("severity",),
        lambda m: _one(m.dead),
    ),
)
_HISTOGRAMS: tuple[tuple[str, str, Callable[[Meters], Distribution]], ...] = (
    (
        "call_duration_seconds",
        "Time of calls that were sent and whose end was reported.",
        lambda m: m.call_seconds,
    ),
    (
        "queue_wait_seconds",
        "From being ready (stored, due, given back) to being handed out.",
        lambda m: m.queue_wait_seconds,
    ),
)


def _one(values: Mapping[Label, int]) -> Samples:
    return {(str(label),): count for label, count in values.items()}


def meter_families(queues: Sequence[tuple[tuple[str, str], Meters]]) -> Iterator[Metric]:
    """`queues`: namespace and name, and what was counted."""
    for name, text, number in _SINGLE:
        yield counter(name, text, {labels: number(m) for labels, m in queues}, *QUEUE_LABELS)
    for name, text, labels, samples in _LABELLED:
        found = {(*q, *key): value for q, m in queues for key, value in samples(m).items()}
        yield counter(name, text, found, *QUEUE_LABELS, *labels)
    for name, text, distribution in _HISTOGRAMS:
        yield histogram(
            name, text, {labels: distribution(m) for labels, m in queues}, *QUEUE_LABELS
        )
