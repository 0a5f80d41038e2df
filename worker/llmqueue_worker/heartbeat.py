"""Renewing leases and showing the process to the planner, every three seconds."""

from __future__ import annotations

import asyncio
import os

import structlog

from llmqueue.errors import StoreError
from llmqueue.store.port import Beat, BeatReply, WorkerStore
from llmqueue_worker.metrics import WorkerMetrics
from llmqueue_worker.runner import Runner
from llmqueue_worker.work import Place, Stop, Work

log = structlog.get_logger(__name__)

BEAT_SECONDS = 3.0
_RETRY_SECONDS = 0.5


class Heartbeat:
    """Beats for ever; ends with its task."""

    def __init__(
        self,
        store: WorkerStore,
        runner: Runner,
        work: Work,
        metrics: WorkerMetrics,
        place: Place,
    ) -> None:
        self._store = store
        self._runner = runner
        self._work = work
        self._metrics = metrics
        self._queue = place.queue
        self._worker = place.worker
        self._slots = place.slots
        self.draining = False
        """The planner's mark: claims are refused while it holds."""

    async def beat(self) -> None:
        """One beat. Raises StoreError."""
        work = self._work
        leases = {held.grant.id: held.grant.fence for held in work.held.values()}
        self._metrics.in_flight.set(len(leases))
        reply = await self._store.beat(
            Beat(
                self._queue,
                self._worker,
                self._slots,
                leases,
                longest_remaining_seconds=max(0.0, work.longest_remaining_seconds()),
                credential=self._runner.credential(),
                pid=os.getpid(),
            )
        )
        self._obey(reply)

    def _obey(self, reply: BeatReply) -> None:
        if reply.draining != self.draining:
            self.draining = reply.draining
            log.info("drain_mark", draining=reply.draining)
        for held in list(self._work.held.values()):
            if held.grant.id in reply.cancelled:
                self._work.stop(held, Stop.CANCELLED)
            elif held.grant.id in reply.lost and not held.sent:
                # A sent call goes on: its answer may still resolve a review.
                self._work.stop(held, Stop.LOST)

    async def run(self) -> None:
        while True:
            try:
                await self.beat()
                pause = BEAT_SECONDS
            except StoreError as exc:
                self._metrics.store_errors.labels("beat").inc()
                log.warning("beat_failed", error=str(exc))
                pause = _RETRY_SECONDS
            await asyncio.sleep(pause)
