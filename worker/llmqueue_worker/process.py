"""The worker process: settings, logs, loop, health, and how it ends."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog
from pydantic import ValidationError

from llmqueue import logging
from llmqueue.errors import StoreError, StoreMisconfigured, UsageError
from llmqueue.settings import WorkerSettings
from llmqueue.store import RedisStore, connect
from llmqueue_worker.backoff import Backoff
from llmqueue_worker.booking import Bookkeeper, load_prices, pricing_of
from llmqueue_worker.dispatch import JobRunner
from llmqueue_worker.inflight import InFlight
from llmqueue_worker.metrics import Stats
from llmqueue_worker.recycle import execute_anew
from llmqueue_worker.runner import Runner
from llmqueue_worker.signals import StopSignals
from llmqueue_worker.worker import Ending, Worker

if TYPE_CHECKING:
    from llmqueue.app import App
    from llmqueue.probes import ProbeServer

EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
_MISCONFIGURED_SECONDS = 5.0

_log = structlog.get_logger()


def run(signals: StopSignals) -> int:
    """Run the worker that the environment describes; returns its exit code."""
    try:
        settings = WorkerSettings()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    except ValidationError as exc:
        for error in exc.errors(include_url=False, include_input=False, include_context=False):
            name = "LLMQUEUE_" + "_".join(map(str, error["loc"])).upper()
            print(f"{name}: {error['msg']}" if error["loc"] else error["msg"], file=sys.stderr)
        return EXIT_USAGE
    logging.configure(
        settings.log_level, settings.log_format, queue=settings.queue, worker=settings.worker_uid
    )
    try:
        app = _app(settings)
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            ending = runner.run(_serve(settings, app, signals))
    except UsageError as exc:
        _log.error("settings-unusable", message=str(exc))
        return EXIT_USAGE
    if ending is Ending.RECYCLED:
        execute_anew(signals)
    return 0


def _app(settings: WorkerSettings) -> App | None:
    """The user's handlers. Raises UsageError where they can't be had."""
    if not settings.handlers:
        return None
    from llmqueue_worker.handlers.loading import load_app  # noqa: PLC0415 - heavy

    return load_app(settings.handlers)


def _runner(
    settings: WorkerSettings,
    app: App | None,
    store: RedisStore,
    stats: Stats,
    bookkeeper: Bookkeeper,
) -> Runner:
    from llmqueue_worker.call import ProviderCalls, ProviderRunner  # noqa: PLC0415 - heavy
    from llmqueue_worker.handlers.book import CallBook  # noqa: PLC0415
    from llmqueue_worker.handlers.runner import HandlerRunner  # noqa: PLC0415

    calls = ProviderCalls(settings)
    book = CallBook(store, settings.queue, stats)
    handlers = HandlerRunner(settings, app, calls, book, bookkeeper)
    return JobRunner(ProviderRunner(settings, calls), handlers)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's loop where it is installed."""
    try:
        import uvloop  # noqa: PLC0415
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _serve(settings: WorkerSettings, app: App | None, signals: StopSignals) -> Ending:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    stats = Stats(InFlight(settings.slots))

    def on_signal() -> None:
        if signals.interrupts > 1:
            _log.error("interrupted", in_flight=len(stats.in_flight))
            os._exit(EXIT_INTERRUPTED)
        stop.set()

    signals.attach(loop, on_signal)
    health = _health(settings, stats)
    try:
        store = await _connected(settings, stop)
        if store is None:
            return Ending.STOPPED
        try:
            return await _work(settings, app, store, stats, stop)
        finally:
            await store.close()
    finally:
        if health is not None:
            await asyncio.to_thread(health.stop)
        signals.detach(loop)


def _health(settings: WorkerSettings, stats: Stats) -> ProbeServer | None:
    if settings.health_port is None:
        return None
    from llmqueue.probes import LoopWatch  # noqa: PLC0415
    from llmqueue_worker.health import health_server  # noqa: PLC0415

    watch = LoopWatch()
    watch.start(asyncio.get_running_loop())
    try:
        health = health_server(stats, watch, port=settings.health_port)
    except OSError as exc:
        raise UsageError(f"health port {settings.health_port}: {exc.strerror}") from exc
    health.start()
    _log.info("health-served", port=health.port)
    return health


async def _connected(settings: WorkerSettings, stop: asyncio.Event) -> RedisStore | None:
    """The store, however long that takes; None once it is time to stop."""
    backoff, told = Backoff(), ""
    while not stop.is_set():
        try:
            return await connect(settings.store_url(), warn=_warn)
        except StoreError as exc:
            if type(exc).__name__ != told:
                told = type(exc).__name__
                _log.warning("store-not-usable", kind=told, message=str(exc))
            slow = isinstance(exc, StoreMisconfigured)
            delay = _MISCONFIGURED_SECONDS if slow else backoff.next()
        try:
            async with asyncio.timeout(delay):
                await stop.wait()
        except TimeoutError:
            continue
    return None


def _warn(text: str) -> None:
    _log.warning("store-warning", message=text)


async def _work(
    settings: WorkerSettings,
    app: App | None,
    store: RedisStore,
    stats: Stats,
    stop: asyncio.Event,
) -> Ending:
    bookkeeper = Bookkeeper(pricing_of(settings.provider))
    runner = _runner(settings, app, store, stats, bookkeeper)
    worker = Worker(settings, store, runner, bookkeeper=bookkeeper, stats=stats)
    _log.info("started", name=worker.name, pid=os.getpid(), slots=settings.slots)

    async def until_told() -> None:
        await stop.wait()
        worker.stop()

    watching = asyncio.create_task(until_told())
    prices = asyncio.get_running_loop().run_in_executor(None, load_prices, settings.provider)
    try:
        return await worker.run()
    finally:
        watching.cancel()
        await asyncio.gather(watching, prices, return_exceptions=True)
        _log.info("ended", name=worker.name, jobs=stats.in_flight.ended)
