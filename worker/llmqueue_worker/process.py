"""A worker process from its first signal handler to its last settle."""

from __future__ import annotations

import asyncio
import secrets
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress

import structlog
from pydantic import ValidationError

from llmqueue.errors import LlmqueueError, StoreError
from llmqueue.logging import configure_logging
from llmqueue.settings import WorkerSettings
from llmqueue.store import RedisStore
from llmqueue_worker.backoff import Backoff
from llmqueue_worker.heartbeat import Heartbeat
from llmqueue_worker.metrics import WorkerMetrics
from llmqueue_worker.pump import Pump
from llmqueue_worker.recycle import RecycleRule, start_anew
from llmqueue_worker.runner import CallRunner, Runner
from llmqueue_worker.work import Place, Stop, Work

log = structlog.get_logger(__name__)

_WATCH_SECONDS = 0.25
_LEAVE_SECONDS = 3.0
EXIT_OK, EXIT_USAGE = 0, 2


class Worker:
    """One process' parts, and the order in which they start and end."""

    def __init__(
        self, settings: WorkerSettings, store: RedisStore, runner: Runner, name: str
    ) -> None:
        self._settings = settings
        self._store = store
        self._runner = runner
        self._name = name
        self.metrics = WorkerMetrics()
        self.metrics.slots.set(settings.slots)
        self.work = Work(
            store,
            runner,
            self.metrics,
            queue=settings.queue,
            request_seconds=settings.request_seconds,
        )
        place = Place(settings.queue, name, settings.slots)
        self.pump = Pump(store, runner, self.work, self.metrics, place)
        self.heartbeat = Heartbeat(store, runner, self.work, self.metrics, place)
        self.recycling = ""

    async def run(self) -> None:
        """Work until stopped, then drain. Returns when everything held is settled or released."""
        tasks = [asyncio.create_task(self.heartbeat.run())]
        if self._settings.health_port is not None:
            from llmqueue_worker.health import serve_health  # noqa: PLC0415

            tasks.append(
                asyncio.create_task(
                    serve_health(
                        self._settings.health_port, lambda: self.pump.answered, self.metrics
                    )
                )
            )
        try:
            await self._first_beat()
            watch = asyncio.create_task(self._watch())
            await self.pump.run()
            watch.cancel()
            await self._drain()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        with suppress(StoreError, TimeoutError):
            await asyncio.wait_for(
                self._store.leave(self._settings.queue, self._name), _LEAVE_SECONDS
            )

    def stop(self) -> None:
        """Take nothing new; what runs may finish within drain_seconds."""
        if not self.pump.stopping.is_set():
            log.info("drain_started", running=len(self.work.held), why=self.recycling or "signal")
            self.pump.stopping.set()

    async def _first_beat(self) -> None:
        """Show the process before its first claim, so that a planner never takes it for gone."""
        backoff = Backoff()
        while not self.pump.stopping.is_set():
            try:
                await self.heartbeat.beat()
            except StoreError:
                await asyncio.sleep(backoff.next())
            else:
                return

    async def _watch(self) -> None:
        settings = self._settings
        rule = RecycleRule(settings.max_jobs, settings.max_seconds, settings.max_memory_mib)
        started = time.monotonic()
        while True:
            await asyncio.sleep(_WATCH_SECONDS if settings.max_jobs else 4 * _WATCH_SECONDS)
            why = rule.due(jobs=self.work.finished, seconds=time.monotonic() - started)
            if why:
                self.recycling = why
                self.stop()
                return

    async def _drain(self) -> None:
        for held in list(self.work.held.values()):
            if not held.sent:
                self.work.stop(held, Stop.DRAIN)
        try:
            await asyncio.wait_for(self.work.idle(), self._settings.drain_seconds)
        except TimeoutError:
            log.error("drain_too_long", running=len(self.work.held))
            for held in list(self.work.held.values()):
                self.work.stop(held, Stop.DRAIN)
            await self.work.idle()
        log.info("drained", finished=self.work.finished)


async def _main(settings: WorkerSettings, stop_asked: Callable[[], bool]) -> str:
    """Returns why the process should start anew, or nothing."""
    name = f"{settings.worker_uid}:{secrets.token_hex(4)}"
    structlog.contextvars.bind_contextvars(queue=settings.queue, worker=name)
    store = RedisStore(settings.redis_url)
    runner = CallRunner(settings, name)
    worker = Worker(settings, store, runner, name)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, worker.stop)
    if stop_asked():
        worker.stop()
    # The prices take a second to load: not while the first answers wait to be settled.
    warming = loop.run_in_executor(None, _load_prices)
    log.info("worker_started", slots=settings.slots)
    try:
        await worker.run()
        await warming
    finally:
        await runner.close()
        await store.close()
    return worker.recycling


def _load_prices() -> None:
    from llmqueue.outcome import Usage  # noqa: PLC0415
    from llmqueue.pricing import price  # noqa: PLC0415
    from llmqueue.states import ProviderType  # noqa: PLC0415

    price("", ProviderType.OPENAI, Usage(0, 0))


def main(stop_asked: Callable[[], bool] = lambda: False) -> int:
    """Run a worker from the environment; returns the exit code."""
    try:
        settings = WorkerSettings()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    except ValidationError as exc:
        for error in exc.errors(include_input=False, include_url=False):
            name = "LLMQUEUE_" + "_".join(map(str, error["loc"])).upper()
            print(f"llmqueue worker: {name}: {error['msg']}", file=sys.stderr)
        return EXIT_USAGE
    configure_logging(settings.log_level, settings.log_format)
    try:
        recycling = _runner_loop(settings, stop_asked)
    except LlmqueueError as exc:
        log.error("worker_failed", error=str(exc))
        return EXIT_USAGE
    if recycling:
        log.info("worker_starts_anew", why=recycling)
        start_anew()
    return EXIT_OK


def _runner_loop(settings: WorkerSettings, stop_asked: Callable[[], bool]) -> str:
    try:
        import uvloop  # noqa: PLC0415
    except ImportError:
        return asyncio.run(_main(settings, stop_asked))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_main(settings, stop_asked))
