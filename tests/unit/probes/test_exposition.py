"""The text that Prometheus reads."""

from __future__ import annotations

import math

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.parser import text_string_to_metric_families

from llmqueue.exposition import exposition


class Families:
    """Of each kind one, with all that must be escaped."""

    def collect(self):
        yield GaugeMetricFamily("a_plain", 'With a \\ and "quotes"\nin two lines.', 1.5)
        labelled = GaugeMetricFamily("a_labelled", "Text.", labels=["z", "b"])
        for value in (0, -1, 1e300, math.inf, -math.inf, 2**53):
            labelled.add_metric([f'say "{value}" \\ é', "two\nlines"], value)
        yield labelled
        counted = CounterMetricFamily("a_counted", "Text.", labels=["b"])
        counted.add_metric([""], 3)
        yield counted
        yield CounterMetricFamily("a_never", "No sample.", labels=["b"])
        spread = HistogramMetricFamily("a_spread_seconds", "Text.", labels=["b"])
        spread.add_metric(["x"], [("0.5", 1), ("+Inf", 2)], 7.25)
        yield spread


def parsed(text: str) -> list[object]:
    return [
        (f.name, f.type, f.documentation, sorted((s.name, sorted(s.labels.items()), s.value) for s in f.samples))
        for f in text_string_to_metric_families(text)
    ]  # fmt: skip


def test_it_says_what_the_client_says() -> None:
    registry = CollectorRegistry()
    registry.register(Families())  # type: ignore[arg-type]
    shown = exposition(registry.collect()).decode()
    assert parsed(shown) == parsed(generate_latest(registry).decode())
    assert len(parsed(shown)) == 5


def test_the_process() -> None:
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    shown = exposition(registry.collect()).decode()
    names = [name for name, *_ in parsed(shown)]  # type: ignore[misc]
    assert "process_resident_memory_bytes" in names
