"""llmqueue.probes over a real socket: what operator and worker share. (/metrics and the loop's
watch are tested with the worker's own checks.)"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import pytest
from prometheus_client import CollectorRegistry, Gauge

from llmqueue.probes import STUCK_SECONDS, LoopWatch, ProbeServer
from support.probing import probed
from support.virtualtime import now, run_virtually


class Bench:
    def __init__(self) -> None:
        self.problem: str | None = None
        self.registry = CollectorRegistry()
        Gauge("fish", "Fish.", registry=self.registry).set(3)
        checks: dict[str, Callable[[], str | None]] = {
            "/livez": lambda: self.problem,
            "/readyz": lambda: None,
            "/broken": self._broken,
        }
        self.server = ProbeServer(checks, self.registry, port=0, host="127.0.0.1")

    @staticmethod
    def _broken() -> str | None:
        raise RuntimeError("a fault in a check")

    def get(self, path: str) -> tuple[int, str]:
        return probed(self.server.port, path)


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    bench.server.start()
    yield bench
    bench.server.stop()


def test_each_check_for_itself(bench: Bench) -> None:
    """S50: liveness tells what is wrong; readiness does not depend on it."""
    assert bench.get("/livez") == (200, "ok\n")
    bench.problem = "the watch of pods brings no news"
    assert bench.get("/livez") == (503, "the watch of pods brings no news\n")
    assert bench.get("/readyz") == (200, "ok\n")
    bench.problem = None
    assert bench.get("/livez") == (200, "ok\n")


def test_metrics(bench: Bench) -> None:
    status, text = bench.get("/metrics")
    assert status == 200
    assert "fish 3.0" in text


@pytest.mark.parametrize("path", ["/", "/livez/", "/metrics/x", "/LIVEZ"])
def test_nothing_else(bench: Bench, path: str) -> None:
    assert bench.get(path) == (404, "not found\n")


def test_a_client_that_says_nothing_holds_nobody_up(bench: Bench) -> None:
    with socket.create_connection(("127.0.0.1", bench.server.port)):
        assert bench.get("/livez")[0] == 200


def test_a_check_that_fails_is_no_good_answer(bench: Bench, capsys: pytest.CaptureFixture) -> None:
    assert bench.get("/broken")[0] == 500
    assert bench.get("/livez")[0] == 200
    capsys.readouterr()


def test_a_port_that_is_taken(bench: Bench) -> None:
    with pytest.raises(OSError, match="in use"):
        ProbeServer({}, bench.registry, port=bench.server.port, host="127.0.0.1")


def test_the_loop_is_watched_for_hours() -> None:
    """It turns, so it is alive; it ends, and half a minute later it is not."""
    import asyncio

    async def scenario() -> LoopWatch:
        watch = LoopWatch(clock=now)
        watch.start(asyncio.get_running_loop())
        for _ in range(100):
            await asyncio.sleep(60)
            assert watch.alive
        watch.stop()
        await asyncio.sleep(STUCK_SECONDS - 2.5)
        assert watch.alive
        await asyncio.sleep(2.6)
        assert not watch.alive
        return watch

    run_virtually(scenario())
