"""What handler runs tell the store, and ask of it; one that is away or was reset is waited for."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence

import structlog

from llmqueue.errors import LlmqueueError
from llmqueue.states import WaitReason
from llmqueue.store.port import (
    AcquireReply,
    CallRequest,
    FinishedCall,
    Grant,
    Journal,
    WorkerStore,
)
from llmqueue_worker.backoff import Backoff
from llmqueue_worker.batching import Batcher
from llmqueue_worker.metrics import Stats
from llmqueue_worker.pump import LIMITED_SECONDS, POLL_SECONDS

NO_JOURNAL = Journal({}, frozenset())
_JITTER_SECONDS = 0.02
_ANNOUNCED = frozenset({WaitReason.PAUSED, WaitReason.BREAKER, WaitReason.UNCONFIGURED})
"""May end at any moment: asked again soon."""

_log = structlog.get_logger()


class CallBook:
    """Calls of handler runs, on one queue of the store."""

    def __init__(
        self,
        store: WorkerStore,
        queue: str,
        stats: Stats,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._store, self._queue, self._sleep = store, queue, sleep
        self._backoff = Backoff()
        self._finished = Batcher[FinishedCall, bool](
            "call", self._finish, patience=_for_ever, sleep=sleep
        )
        stats.batchers = {**stats.batchers, "call": self._finished}

    async def acquire(self, request: CallRequest) -> AcquireReply:
        """Charge a call; `wait_seconds` of a refusal says when to ask again."""
        try:
            reply = await self._store.acquire(self._queue, request)
        except LlmqueueError as exc:
            _log.warning("acquire-unanswered", job=request.id, error=str(exc))
            return AcquireReply("wait", self._backoff.next())
        self._backoff.reset()
        if reply.verdict != "wait":
            return reply
        bound = POLL_SECONDS if reply.reason in _ANNOUNCED else LIMITED_SECONDS
        wait = min(reply.wait_seconds, bound)
        pause = wait + random.uniform(0, min(_JITTER_SECONDS, 0.1 * wait))
        return AcquireReply("wait", pause, reply.reason, reply.limit)

    def finish(self, call: FinishedCall) -> asyncio.Future[bool]:
        """Record a call, repeated until acknowledged. False: the job is no longer this run's."""
        return self._finished.submit(call)

    async def journal(self, grant: Grant) -> Journal:
        """What earlier runs left."""
        if not grant.journaled:
            return NO_JOURNAL
        backoff = Backoff()
        while True:
            try:
                return await self._store.journal(self._queue, grant.id)
            except LlmqueueError as exc:
                _log.warning("journal-unanswered", job=grant.id, error=str(exc))
                await self._sleep(backoff.next())

    async def progress(self, grant: Grant, fraction: float, message: str) -> None:
        """Show it; what the store does not take is not worth a job's failure."""
        try:
            await self._store.progress(
                self._queue, grant.id, grant.fence, fraction=fraction, message=message
            )
        except LlmqueueError as exc:
            _log.debug("progress-unanswered", job=grant.id, error=str(exc))

    async def close(self) -> None:
        await self._finished.close()

    async def _finish(self, calls: Sequence[FinishedCall]) -> Sequence[bool]:
        return await self._store.finish_calls(self._queue, calls)


def _for_ever(_call: FinishedCall, _error: Exception) -> Exception | None:
    return None
