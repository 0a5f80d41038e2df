"""How the process starts and ends, in this process; real ones are in the integration tests."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator

import pytest
import structlog
import structlog.testing

from llmqueue_worker import process, recycle
from llmqueue_worker.signals import StopSignals, hold_back
from support.scriptedrunner import settings

HANDLED = (signal.SIGTERM, signal.SIGINT)


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in HANDLED}
    yield
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)
    for number, handler in before.items():
        signal.signal(number, handler)


def kill(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


def test_signals_count_from_the_installation_on() -> None:
    signals = StopSignals()
    signals.install()
    assert not signals.received
    kill(signal.SIGTERM)
    assert signals.received
    assert signals.interrupts == 0
    kill(signal.SIGINT)
    kill(signal.SIGINT)
    assert signals.interrupts == 2


async def test_earlier_and_later_signals_reach_the_loop() -> None:
    """Q4: a SIGTERM during the imports is not lost."""
    signals = StopSignals()
    signals.install()
    kill(signal.SIGTERM)
    told = 0

    def notify() -> None:
        nonlocal told
        told += 1

    loop = asyncio.get_running_loop()
    signals.attach(loop, notify)
    await asyncio.sleep(0)
    assert told == 1
    kill(signal.SIGTERM)
    async with asyncio.timeout(5):
        while told < 2:
            await asyncio.sleep(0.001)
    signals.detach(loop)
    kill(signal.SIGTERM)
    await asyncio.sleep(0)
    assert told == 2
    assert signals.received


def test_signals_are_kept_across_an_exec() -> None:
    """A SIGTERM between two images must not kill the process: it is delivered to the next one."""
    signals = StopSignals()
    signals.install()
    hold_back()
    # To this thread: one for the process would go to any other that does not hold it back.
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
    assert not signals.received
    signals.install()
    assert signals.received


def test_executes_itself_with_its_own_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    executed: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(os, "execv", lambda path, args: executed.append((path, args)))
    monkeypatch.setattr(sys, "orig_argv", ["python", "-m", "llmqueue_worker"])
    signals = StopSignals()
    recycle.execute_anew(signals)
    assert executed == [(sys.executable, [sys.executable, "-m", "llmqueue_worker"])]
    signals.install()


def test_a_stop_that_another_thread_caught_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "execv", lambda *_: pytest.fail("executed itself though told to end"))
    signals = StopSignals()
    signals.install()
    kill(signal.SIGTERM)
    recycle.execute_anew(signals)
    signals.install()


def environment(monkeypatch: pytest.MonkeyPatch, **values: str) -> None:
    for name in [name for name in os.environ if name.startswith("LLMQUEUE_")]:
        monkeypatch.delenv(name)
    for name, value in values.items():
        monkeypatch.setenv(f"LLMQUEUE_{name.upper()}", value)


def test_wrong_settings_are_named_and_no_secret_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    environment(monkeypatch, redis_url="redis://:hunter2@host", slots="none")
    assert process.run(StopSignals()) == process.EXIT_USAGE
    told = capsys.readouterr().err
    for name in ("QUEUE", "WORKER_UID", "PROVIDER", "BASE_URL", "SLOTS"):
        assert f"LLMQUEUE_{name}: " in told
    assert "hunter2" not in told


def test_a_url_that_is_none_is_a_clear_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    environment(
        monkeypatch,
        redis_url="http://:hunter2@host",
        queue="default/q",
        worker_uid="u",
        provider="openai",
        base_url="http://127.0.0.1:9",
    )
    assert process.run(StopSignals()) == process.EXIT_USAGE
    told = capsys.readouterr().err
    assert "settings-unusable" in told
    assert "hunter2" not in told


async def test_warnings_of_the_store_are_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    async def connect(_url: str, *, warn: Callable[[str], None]) -> object:
        warn("append-only file is off")
        return object()

    monkeypatch.setattr(process, "connect", connect)
    with structlog.testing.capture_logs() as logs:
        await process._connected(settings(), asyncio.Event())
    assert [(line["event"], line["message"]) for line in logs] == [
        ("store-warning", "append-only file is off")
    ]
