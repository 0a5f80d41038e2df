"""The one loop that asks for jobs: as many as there are free slots, when it was told to come."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

import structlog

from llmqueue.errors import StoreError, StoreUnavailable
from llmqueue.states import WaitReason
from llmqueue.store.port import ClaimReply, ClaimRequest, WorkerStore
from llmqueue_worker.backoff import Backoff
from llmqueue_worker.metrics import WorkerMetrics
from llmqueue_worker.runner import Runner
from llmqueue_worker.work import Place, Work

log = structlog.get_logger(__name__)

MAX_SLEEP_SECONDS = 5.0
"""A promise of the store is looked at again at least this often: limits may have changed."""
_JITTER_SECONDS = 0.02
_WOKEN = frozenset({WaitReason.EMPTY, WaitReason.IN_FLIGHT, WaitReason.SUSPENDED})


class Pump:
    """Claims for free slots only, until stopped; survives every failure of the store."""

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
        self._backoff = Backoff()
        self._trouble = ""
        self.stopping = asyncio.Event()
        self.answered = False
        """Latches at the first answered claim: the process is ready."""

    async def run(self) -> None:
        while not self.stopping.is_set():
            free = self._slots - len(self._work.held)
            if free <= 0:
                await self._slot_or_stop()
                continue
            reply = await self._claim(free)
            if reply is not None:
                await self._take(reply, free)

    async def _claim(self, free: int) -> ClaimReply | None:
        try:
            reply = await self._store.claim(
                ClaimRequest(
                    self._queue,
                    self._worker,
                    free,
                    credential=self._runner.credential(),
                    clean=self._work.clean,
                )
            )
        except Exception as exc:
            self._metrics.store_errors.labels("claim").inc()
            self._report(f"{type(exc).__name__}: {exc}", defect=not isinstance(exc, StoreError))
            slow = not isinstance(exc, StoreUnavailable)
            await self._sleep(MAX_SLEEP_SECONDS if slow else self._backoff.next())
            return None
        self._backoff.reset()
        self._report("unconfigured" if reply.reason is WaitReason.UNCONFIGURED else "")
        self.answered = True
        self._metrics.last_claim.set(time.time())
        return reply

    def _report(self, trouble: str, *, defect: bool = False) -> None:
        """Log trouble once, and once that it is over."""
        if trouble == self._trouble:
            return
        self._trouble = trouble
        if trouble:
            log.warning("claims_fail", error=trouble, exc_info=defect)
        else:
            log.info("claims_work_again")

    async def _take(self, reply: ClaimReply, free: int) -> None:
        if self.stopping.is_set() and reply.grants:
            pairs = [(grant.id, grant.fence) for grant in reply.grants]
            with suppress(StoreError):  # else the leases run out, which costs time only
                await self._store.release(self._queue, pairs)
            return
        for grant in reply.grants:
            self._work.start(grant)
        self._metrics.claims.labels(str(reply.reason or "granted")).inc()
        if reply.reason is None or reply.reason is WaitReason.AGAIN:
            return
        wait = min(reply.wait_seconds, MAX_SLEEP_SECONDS)
        if reply.reason in _WOKEN:
            await self._work_or_stop(wait)
        else:
            await self._sleep(wait + random.random() * _JITTER_SECONDS)

    # ------------------------------------------------------------ waiting

    async def _slot_or_stop(self) -> None:
        self._work.changed.clear()
        if len(self._work.held) >= self._slots:
            await self._first(self._work.changed.wait())

    async def _work_or_stop(self, seconds: float) -> None:
        try:
            await self._first(self._store.wait_for_work(self._queue, max(seconds, 0.05)))
        except StoreError:
            await self._sleep(self._backoff.next())

    async def _sleep(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self.stopping.wait(), seconds)

    async def _first(self, waiting: Coroutine[Any, Any, bool]) -> None:
        """Wait for something, or for the stop."""
        task = asyncio.create_task(waiting)
        stop = asyncio.create_task(self.stopping.wait())
        done, pending = await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
        for one in pending:
            one.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        if task in done:
            task.result()
