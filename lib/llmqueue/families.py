"""Prometheus' families from plain numbers; made at a scrape, so nothing is imported before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from llmqueue.store.meters import Distribution

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric
    from prometheus_client.registry import Collector

PREFIX = "llmqueue_"
Samples = Mapping[tuple[str, ...], float]
"""Values of the labels → value."""


def gauge(name: str, text: str, values: Samples, *labels: str) -> Metric:
    from prometheus_client.metrics_core import GaugeMetricFamily  # noqa: PLC0415

    family = GaugeMetricFamily(PREFIX + name, text, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family


def counter(name: str, text: str, values: Samples, *labels: str) -> Metric:
    """`name` without `_total`."""
    from prometheus_client.metrics_core import CounterMetricFamily  # noqa: PLC0415

    family = CounterMetricFamily(PREFIX + name, text, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family


def histogram(
    name: str, text: str, values: Mapping[tuple[str, ...], Distribution], *labels: str
) -> Metric:
    from prometheus_client.metrics_core import HistogramMetricFamily  # noqa: PLC0415

    family = HistogramMetricFamily(PREFIX + name, text, labels=labels)
    for key, value in values.items():
        below, buckets = 0, list[tuple[str, float]]()
        for bound, count in zip([*map(str, value.bounds), "+Inf"], value.counts, strict=True):
            below += count
            buckets.append((bound, below))
        family.add_metric(key, buckets, value.total)
    return family


def registry_of(collector: Collector) -> CollectorRegistry:
    """A registry that holds its metrics and those of the process (memory, CPU, start)."""
    from prometheus_client import CollectorRegistry, ProcessCollector  # noqa: PLC0415

    found = CollectorRegistry()
    found.register(collector)
    ProcessCollector(registry=found)
    return found
