"""Prometheus' families from plain numbers; made at a scrape, so nothing is imported before.

Samples are made here: `add_metric` takes twice as long, and a thousand queues have 120,000.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from llmqueue.store.meters import Distribution

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

PREFIX = "llmqueue_"
QUEUE_LABELS = ("namespace", "queue")
Samples = Mapping[tuple[str, ...], float]
"""Values of the labels → value."""


def gauge(name: str, text: str, values: Samples, *labels: str) -> Metric:
    from prometheus_client.metrics_core import GaugeMetricFamily  # noqa: PLC0415
    from prometheus_client.samples import Sample  # noqa: PLC0415

    family = GaugeMetricFamily(PREFIX + name, text, labels=labels)
    shown = family.name
    family.samples = [
        Sample(shown, dict(zip(labels, key, strict=True)), value) for key, value in values.items()
    ]
    return family


def counter(name: str, text: str, values: Samples, *labels: str) -> Metric:
    """`name` without `_total`."""
    from prometheus_client.metrics_core import CounterMetricFamily  # noqa: PLC0415
    from prometheus_client.samples import Sample  # noqa: PLC0415

    family = CounterMetricFamily(PREFIX + name, text, labels=labels)
    shown = f"{family.name}_total"
    family.samples = [
        Sample(shown, dict(zip(labels, key, strict=True)), value) for key, value in values.items()
    ]
    return family


def histogram(
    name: str, text: str, values: Mapping[tuple[str, ...], Distribution], *labels: str
) -> Metric:
    from prometheus_client.metrics_core import HistogramMetricFamily  # noqa: PLC0415
    from prometheus_client.samples import Sample  # noqa: PLC0415

    family = HistogramMetricFamily(PREFIX + name, text, labels=labels)
    bucket, count, total = (f"{family.name}_{part}" for part in ("bucket", "count", "sum"))
    samples = family.samples
    for key, value in values.items():
        own, below = dict(zip(labels, key, strict=True)), 0
        for bound, some in zip([*map(str, value.bounds), "+Inf"], value.counts, strict=True):
            below += some
            samples.append(Sample(bucket, {**own, "le": bound}, below))
        samples += (Sample(count, own, below), Sample(total, own, value.total))
    return family
