"""One worker: its parts put together, from the first connection to the last settle."""

from __future__ import annotations

import asyncio
import secrets
from enum import Enum, auto
from typing import Literal

import structlog

from llmqueue.credentials import Credential, CredentialFile
from llmqueue.errors import LlmqueueError
from llmqueue.settings import WorkerSettings
from llmqueue.store.port import Grant, WorkerStore
from llmqueue_worker.booking import Bookkeeper
from llmqueue_worker.drain import drain
from llmqueue_worker.heartbeat import LEASE_FRACTION, Heartbeat
from llmqueue_worker.inflight import InFlight
from llmqueue_worker.metrics import Stats
from llmqueue_worker.pump import Pump
from llmqueue_worker.recorder import Recorder
from llmqueue_worker.recycle import Recycling
from llmqueue_worker.run import Runs
from llmqueue_worker.runner import Runner

_LEAVE_SECONDS = 2.0

_log = structlog.get_logger()


class Ending(Enum):
    """Why a worker's run is over."""

    STOPPED = auto()
    RECYCLED = auto()


class Worker:
    """Runs jobs of one queue until told to stop, or until it is time for a new process image.

    Make it inside the event loop. `name` is "<uid>:<start nonce>".
    """

    def __init__(
        self,
        settings: WorkerSettings,
        store: WorkerStore,
        runner: Runner,
        *,
        bookkeeper: Bookkeeper | None = None,
        stats: Stats | None = None,
        recycling: Recycling | None = None,
    ) -> None:
        self.name = f"{settings.worker_uid}:{secrets.token_hex(4)}"
        self._settings, self._store, self._runner = settings, store, runner
        self.stats = stats or Stats(InFlight(settings.slots))
        self.in_flight = self.stats.in_flight
        self.recycling = recycling or Recycling(settings)
        credentials = CredentialFile(settings.api_key_file)
        self.recorder = Recorder(store, settings.queue, self.stats)
        self.runs = Runs(
            runner,
            self.recorder,
            self.in_flight,
            bookkeeper or Bookkeeper(),
            self.stats,
            call_seconds=settings.call_seconds,
            connect_seconds=settings.connect_seconds,
        )
        self.pump = Pump(
            store,
            self.in_flight,
            self.stats,
            credentials,
            queue=settings.queue,
            worker=self.name,
            start=self._start,
            quota=self.recycling.quota,
        )
        self.heartbeat = Heartbeat(
            store,
            self.in_flight,
            self.stats,
            credentials,
            queue=settings.queue,
            worker=self.name,
            interval_seconds=settings.lease_seconds * LEASE_FRACTION,
            on_drain_mark=self.pump.hold,
        )
        self._stop = asyncio.Event()

    def _start(self, grant: Grant, credential: Credential) -> None:
        self.recycling.started()
        self.runs.start(grant, credential)

    def stop(self) -> None:
        """Drain, then let `run` return; further calls change nothing."""
        self._stop.set()

    async def run(self) -> Ending:
        """Work, drain, leave."""
        beating = asyncio.create_task(self.heartbeat.run(), name="heartbeat")
        stopped = asyncio.create_task(self._stop.wait())
        pumping = asyncio.create_task(self._pump(stopped), name="pump")
        await asyncio.wait((pumping, stopped), return_when=asyncio.FIRST_COMPLETED)
        _log.info(
            "draining",
            queue=self._settings.queue,
            reason="stopped" if self._stop.is_set() else self.recycling.reason,
            in_flight=len(self.in_flight),
        )
        self.heartbeat.ready = False
        if not self._stop.is_set():
            # Recycling hurries nobody: giving back what is not sent yet, an image that may start
            # one job only would never run it.
            await self._wait_for(self.in_flight.idle, stopped)
        await drain(
            self.pump,
            pumping,
            self.runs,
            self.recorder,
            self.in_flight,
            seconds=self._settings.drain_seconds,
        )
        for task in (beating, stopped, pumping):
            task.cancel()
        await asyncio.gather(beating, stopped, pumping, return_exceptions=True)
        await self._leave()
        return Ending.STOPPED if self._stop.is_set() else Ending.RECYCLED

    async def _pump(self, stopped: asyncio.Task[Literal[True]]) -> None:
        """Claim once the planner can see this process: jobs of an unseen one look abandoned."""
        await self._wait_for(self.heartbeat.seen, stopped)
        await self.pump.run()

    async def _wait_for(self, event: asyncio.Event, stopped: asyncio.Task[Literal[True]]) -> None:
        """Until the event or the stop."""
        waiting = asyncio.create_task(event.wait())
        await asyncio.wait((waiting, stopped), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()

    async def _leave(self) -> None:
        await self.recorder.close()
        try:
            async with asyncio.timeout(_LEAVE_SECONDS):
                await self._store.leave(self._settings.queue, self.name)
        except (LlmqueueError, TimeoutError) as exc:  # its queue may be removed
            _log.info("left-unheard", queue=self._settings.queue, error=str(exc))
        await self._runner.close()
