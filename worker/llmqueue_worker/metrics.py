"""Metrics of one worker process. Labels are bounded: never a job or a tenant."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_BUCKETS = (0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60, 120, 300, 600)


class WorkerMetrics:
    """All metrics, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.calls = Counter(
            "llmqueue_worker_calls",
            "Finished runs by outcome class",
            ["class"],
            registry=self.registry,
        )
        self.call_seconds = Histogram(
            "llmqueue_worker_call_duration_seconds",
            "From claim to answer",
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.in_flight = Gauge("llmqueue_worker_in_flight", "Jobs held now", registry=self.registry)
        self.slots = Gauge("llmqueue_worker_slots", "Jobs held at most", registry=self.registry)
        self.claims = Counter(
            "llmqueue_worker_claims",
            "Claims by what stopped them",
            ["reason"],
            registry=self.registry,
        )
        self.refused = Counter(
            "llmqueue_worker_sent_refused",
            "Calls refused before sending",
            ["reason"],
            registry=self.registry,
        )
        self.store_errors = Counter(
            "llmqueue_worker_store_errors",
            "Failed store operations",
            ["operation"],
            registry=self.registry,
        )
        self.fenced = Counter(
            "llmqueue_worker_settles_fenced",
            "Settles whose lease was gone",
            registry=self.registry,
        )
        self.last_claim = Gauge(
            "llmqueue_worker_last_claim_timestamp_seconds",
            "Last answered claim",
            registry=self.registry,
        )
