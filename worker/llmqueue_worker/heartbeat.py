"""Renews all leases of the process in one batch, and learns what was cancelled or lost."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping

import structlog

from llmqueue.credentials import CredentialFile
from llmqueue.errors import StoreError, UsageError
from llmqueue.store.port import Beat, BeatReply, WorkerStore
from llmqueue_worker.attempt import Attempt, Stop
from llmqueue_worker.backoff import Backoff
from llmqueue_worker.inflight import InFlight
from llmqueue_worker.metrics import Stats

LEASE_FRACTION = 0.3
"""Renewed every 3 s of a lease of 10 s: two renewals may fail."""

_log = structlog.get_logger()


class Heartbeat:
    """Beats every `interval_seconds`, idle or not, until cancelled.

    `on_drain_mark` is told with each answer whether a drain mark holds.
    """

    def __init__(
        self,
        store: WorkerStore,
        in_flight: InFlight,
        stats: Stats,
        credentials: CredentialFile,
        *,
        queue: str,
        worker: str,
        interval_seconds: float,
        on_drain_mark: Callable[[bool], None],
    ) -> None:
        self._store, self._in_flight, self._stats = store, in_flight, stats
        self._credentials, self._on_drain_mark = credentials, on_drain_mark
        self._queue, self._worker = queue, worker
        self._interval_seconds = interval_seconds
        self._backoff = Backoff(first=interval_seconds / 10, most=interval_seconds)
        self._marked = False
        self.ready = True
        self.seen = asyncio.Event()
        """The store knows this process."""

    async def run(self) -> None:
        task = asyncio.current_task()
        # redis-py swallows a cancellation that falls into its connecting; the task still counts it.
        while task is None or not task.cancelling():
            pause = await self._beat()
            if task is None or not task.cancelling():
                await asyncio.sleep(pause)

    async def _beat(self) -> float:
        """Returns the seconds until the next one."""
        leases = self._in_flight.leases()
        try:
            reply = await self._store.beat(self._message(leases))
        except (StoreError, UsageError) as exc:
            self._stats.beat_failures += 1
            _log.debug("heartbeat-failed", queue=self._queue, error=str(exc))
            return self._backoff.next()
        except Exception:  # an edge: without renewals every running call would be lost
            self._stats.beat_failures += 1
            _log.exception("heartbeat-failed", queue=self._queue)
            return self._backoff.next()
        self._backoff.reset()
        self._stats.beats += 1
        self.seen.set()
        self._apply(reply, leases)
        return self._interval_seconds

    def _message(self, leases: Mapping[str, str]) -> Beat:
        now = asyncio.get_running_loop().time()
        return Beat(
            queue=self._queue,
            worker=self._worker,
            slots=self._in_flight.slots,
            leases=leases,
            longest_remaining_seconds=max(0.0, self._in_flight.longest_remaining(now)),
            credential=self._fingerprint(),
            ready=self.ready,
            pid=os.getpid(),
            held=self._in_flight.held(now),
        )

    def _fingerprint(self) -> str:
        try:
            return self._credentials.read().fingerprint
        except UsageError:
            return ""

    def _apply(self, reply: BeatReply, leases: Mapping[str, str]) -> None:
        for job in reply.cancelled:
            if attempt := self._still_running(leases[job]):
                attempt.interrupt(Stop.CANCELLED)
        for job in reply.lost:
            if attempt := self._still_running(leases[job]):
                self._lost(attempt)
        if reply.draining != self._marked:
            self._marked = reply.draining
            _log.info("drain-mark", queue=self._queue, marked=reply.draining)
        self._on_drain_mark(reply.draining)

    def _still_running(self, fence: str) -> Attempt | None:
        """The attempt, unless it came to its end while the beat was on its way."""
        attempt = self._in_flight.get(fence)
        return attempt if attempt is not None and not attempt.finished else None

    def _lost(self, attempt: Attempt) -> None:
        """A call that was sent goes on: its late settle still says what happened."""
        self._stats.leases_lost += 1
        _log.warning("lease-lost", job=attempt.grant.id, sent=attempt.sent)
        if not attempt.sent:
            attempt.interrupt(Stop.LOST)
