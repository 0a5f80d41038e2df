"""Probes and metrics over a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from llmqueue.probes import STUCK_SECONDS, LoopWatch
from llmqueue.states import OutcomeClass, RefusalReason, WaitReason
from llmqueue_worker.health import health_server
from llmqueue_worker.inflight import InFlight
from llmqueue_worker.metrics import Stats
from support.probing import probed
from support.workerbench import metric


class Bench:
    def __init__(self) -> None:
        self.now = 1000.0
        self.stats = Stats(InFlight(3), clock=lambda: self.now)
        self.watch = LoopWatch(clock=lambda: self.now)
        self.health = health_server(self.stats, self.watch, port=0, host="127.0.0.1")

    def get(self, path: str) -> tuple[int, str]:
        return probed(self.health.port, path)


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    bench.health.start()
    yield bench
    bench.health.stop()


def test_alive_while_the_loop_turns(bench: Bench) -> None:
    """Only the loop counts: no claim was ever answered here, and it is alive."""
    assert bench.get("/livez") == (200, "ok\n")
    bench.now += STUCK_SECONDS + 1
    assert bench.get("/livez") == (503, "the event loop is stuck\n")


async def test_the_loop_keeps_its_watch_alive() -> None:
    now = 0.0
    watch = LoopWatch(clock=lambda: now)
    now = STUCK_SECONDS
    assert not watch.alive
    watch.start(asyncio.get_running_loop())
    assert watch.alive
    watch.stop()


def test_ready_after_the_first_answered_claim_and_ever_after(bench: Bench) -> None:
    assert bench.get("/readyz")[0] == 503
    bench.stats.claimed(0, WaitReason.PAUSED)
    assert bench.get("/readyz") == (200, "ok\n")
    bench.now += 100_000
    assert bench.get("/readyz") == (200, "ok\n")


def test_nothing_else_is_served(bench: Bench) -> None:
    assert bench.get("/")[0] == 404


def test_metrics(bench: Bench) -> None:
    """Q37: the age of the last claim is one of them."""
    bench.stats.claimed(2, WaitReason.EMPTY)
    bench.stats.claimed(3, None)
    bench.stats.called(OutcomeClass.SUCCESS, 0.5)
    bench.stats.called(OutcomeClass.SUCCESS, 500.0)
    bench.stats.called(OutcomeClass.RATE, 5000.0)
    bench.stats.refused[RefusalReason.LATE] += 1
    bench.stats.leases_lost += 4
    bench.now += 12.5
    status, text = bench.get("/metrics")
    assert status == 200
    start = "llmqueue_worker_"
    assert metric(text, start + "last_claim_age_seconds") == 12.5
    assert metric(text, start + "slots") == 3
    assert metric(text, start + "in_flight") == 0
    assert metric(text, start + "calls_total", outcome="SUCCESS") == 2
    assert metric(text, start + "calls_total", outcome="RATE") == 1
    assert metric(text, start + "claims_total", reason="empty") == 1
    assert metric(text, start + "claims_total", reason="filled") == 1
    assert metric(text, start + "granted_total") == 5
    assert metric(text, start + "sent_refused_total", reason="late") == 1
    assert metric(text, start + "leases_lost_total") == 4
    duration = start + "attempt_duration_seconds"
    assert metric(text, duration + "_bucket", le="0.5") == 1
    assert metric(text, duration + "_bucket", le="600.0") == 2
    assert metric(text, duration + "_bucket", le="+Inf") == 3
    assert metric(text, duration + "_sum") == 5500.5
    assert "process_resident_memory_bytes" in text
