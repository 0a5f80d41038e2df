"""Worker processes: real ones, whose program is a few lines so that each end can be provoked."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from llmqueue_cli.local.journal import Journal
from llmqueue_cli.local.processes import WorkerEnd, WorkerKind, WorkerPool
from llmqueue_operator.planning import PodPhase

DRAINS = """
    import os, signal, sys, time
    def on_term(*_):
        time.sleep(0.2)
        sys.exit(0)
    signal.signal(signal.SIGTERM, on_term)
    open(os.environ["FOLDER"] + "/" + os.environ["LLMQUEUE_WORKER_UID"], "w").write(
        "\\n".join(f"{k}={v}" for k, v in os.environ.items()))
    while True: time.sleep(60)
"""
STUBBORN = """
    import os, signal, time
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    open(os.environ["FOLDER"] + "/" + os.environ["LLMQUEUE_WORKER_UID"], "w").close()
    while True: time.sleep(60)
"""
CRASHES = "raise SystemExit(3)"


class Bench:
    """A pool on a clock that tests move, and what it said."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now = 1000.0
        self.said: list[str] = []
        self.ends: list[WorkerEnd] = []
        self.pools: list[WorkerPool] = []

    def kind(self, *, grace_seconds: float = 60.0, **environment: str) -> WorkerKind:
        return WorkerKind("default/q", {"FOLDER": str(self.folder), **environment}, grace_seconds)

    def pool(self, program: str, *, grace_seconds: float = 60.0) -> WorkerPool:
        pool = WorkerPool(
            self.kind(grace_seconds=grace_seconds),
            Journal(as_json=False, write=self.said.append),
            on_exit=self.ends.append,
            clock=lambda: self.now,
            command=(sys.executable, "-c", textwrap.dedent(program)),
        )
        self.pools.append(pool)
        return pool

    def started(self) -> set[str]:
        return {path.name for path in self.folder.iterdir()}

    async def until(self, true: Callable[[], bool], *, seconds: float = 10.0) -> None:
        deadline = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < deadline, "did not come true in time"
            await asyncio.sleep(0.01)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    for pool in bench.pools:
        pool.kill()
        await bench.until(lambda pool=pool: pool.alive == 0)


@pytest.fixture
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-parent")
    monkeypatch.setenv("LLMQUEUE_CREDENTIAL_TEAM", "sk-team")


@pytest.mark.usefixtures("_keys")
async def test_workers_get_their_environment_and_none_of_the_parent_s_keys(bench: Bench) -> None:
    pool = bench.pool(DRAINS)
    await pool.apply(replicas=2, remove=())
    await bench.until(lambda: len(bench.started()) == 2)
    assert bench.started() == {pod.uid for pod in pool.pods()}
    for uid in bench.started():
        text = (bench.folder / uid).read_text()
        assert f"LLMQUEUE_WORKER_UID={uid}" in text
        assert "sk-" not in text


@pytest.mark.parametrize(
    "name", ["LLMQUEUE_API_KEY_FILE", "llmqueue_api_key_file", "LLMQUEUE_HEALTH_PORT"]
)
async def test_no_setting_of_the_parent_reaches_a_worker(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A queue without a key must not send one that `up` was started with to its provider."""
    monkeypatch.setenv(name, "of-the-parent")
    pool = bench.pool(DRAINS)
    await pool.apply(replicas=1, remove=())
    await bench.until(lambda: len(bench.started()) == 1)
    (path,) = bench.folder.iterdir()
    await bench.until(lambda: f"LLMQUEUE_WORKER_UID={path.name}" in path.read_text())
    assert "of-the-parent" not in path.read_text()


async def test_workers_are_out_of_reach_of_the_terminal_s_interrupt(bench: Bench) -> None:
    pool = bench.pool(DRAINS)
    await pool.apply(replicas=1, remove=())
    assert os.getsid(int(pool.pods()[0].name)) != os.getsid(0)


async def test_pending_until_the_first_heartbeat(bench: Bench) -> None:
    pool = bench.pool(DRAINS)
    await pool.apply(replicas=1, remove=())
    (pod,) = pool.pods()
    assert (pod.phase, pod.ready) == (PodPhase.PENDING, False)
    bench.now += 1.5
    pool.observe({pod.uid: 3, "somebody else": 1})
    (pod,) = pool.pods()
    assert (pod.phase, pod.ready, pod.age_seconds) == (PodPhase.RUNNING, True, 1.5)
    assert pool.start_seconds == 1.5


async def test_a_victim_drains_and_is_no_replica_meanwhile(bench: Bench) -> None:
    pool = bench.pool(DRAINS)
    await pool.apply(replicas=2, remove=())
    await bench.until(lambda: len(bench.started()) == 2)
    victim = pool.pods()[0].uid
    await pool.apply(replicas=1, remove=(victim,))
    assert {pod.uid: pod.phase for pod in pool.pods()}[victim] is PodPhase.TERMINATING
    assert (pool.replicas, pool.alive) == (1, 2)
    await bench.until(lambda: pool.alive == 1)
    assert [end.drained for end in bench.ends] == [True]
    assert bench.said == [], "an end that was asked for is no event"


async def test_a_worker_that_does_not_end_is_killed_after_its_grace(bench: Bench) -> None:
    pool = bench.pool(STUBBORN, grace_seconds=30)
    await pool.apply(replicas=1, remove=())
    await bench.until(lambda: len(bench.started()) == 1)
    await pool.apply(replicas=0, remove=tuple(bench.started()))
    bench.now += 29
    await pool.apply(replicas=0, remove=())
    await asyncio.sleep(0.1)
    assert pool.alive == 1
    bench.now += 1
    await pool.apply(replicas=0, remove=())
    await bench.until(lambda: pool.alive == 0)
    assert "did not end within its grace period" in bench.said[0]


async def test_a_steady_worker_that_was_killed_is_replaced_at_once(bench: Bench) -> None:
    """S9"""
    pool = bench.pool(DRAINS)
    await pool.apply(replicas=1, remove=())
    await bench.until(lambda: len(bench.started()) == 1)
    bench.now += 11
    pool.observe({pool.pods()[0].uid: 2})
    os.kill(int(pool.pods()[0].name), signal.SIGKILL)
    await bench.until(lambda: pool.alive == 0)
    (end,) = bench.ends
    assert (end.seconds, end.drained, end.in_flight) == (11, False, 2)
    assert "ended unasked after 11 s (signal 9)" in bench.said[0]
    await pool.apply(replicas=1, remove=())
    assert [pod.phase for pod in pool.pods()] == [PodPhase.PENDING]


async def test_a_crash_loop_backs_off_and_holds_its_place(bench: Bench) -> None:
    pool = bench.pool(CRASHES)
    delays: list[float] = []
    await pool.apply(replicas=1, remove=())
    for _ in range(8):
        await bench.until(lambda: pool.alive == 0)
        await pool.apply(replicas=1, remove=())
        assert [pod.phase for pod in pool.pods()] == [PodPhase.FAILED]
        assert pool.replicas == 1
        waited = 0.0
        while pool.alive == 0:
            bench.now += 1
            waited += 1
            await pool.apply(replicas=1, remove=())
        delays.append(waited)
    assert delays == [1, 2, 4, 8, 16, 32, 60, 60]


async def test_a_held_place_can_be_given_up(bench: Bench) -> None:
    pool = bench.pool(CRASHES)
    await pool.apply(replicas=1, remove=())
    await bench.until(lambda: pool.alive == 0)
    await pool.apply(replicas=1, remove=())
    await pool.apply(replicas=0, remove=(pool.pods()[0].uid,))
    assert pool.pods() == ()
    assert pool.replicas == 0


async def test_a_changed_kind_replaces_the_workers(bench: Bench) -> None:
    pool = bench.pool(DRAINS)
    await pool.apply(replicas=1, remove=())
    await bench.until(lambda: len(bench.started()) == 1)
    pool.renew(bench.kind())
    assert pool.replicas == 1, "the same kind changes nothing"
    pool.renew(bench.kind(NEW="1"))
    assert pool.replicas == 0
    await pool.apply(replicas=1, remove=())
    await bench.until(lambda: len(bench.started()) == 2 and pool.alive == 1)
    assert "NEW=1" in (bench.folder / pool.pods()[0].uid).read_text()


async def test_drain_returns_when_the_last_one_has_gone(bench: Bench) -> None:
    pool = bench.pool(DRAINS)
    await pool.apply(replicas=3, remove=())
    await bench.until(lambda: len(bench.started()) == 3)
    started = time.monotonic()
    await pool.drain()
    assert pool.alive == 0
    assert 0.2 <= time.monotonic() - started < 5
