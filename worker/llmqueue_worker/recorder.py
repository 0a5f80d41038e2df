"""What attempts tell the store: may it leave, what it came to, take it back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from llmqueue.errors import StoreError, StoreUnavailable
from llmqueue.providers.http import NotSent
from llmqueue.states import RefusalReason
from llmqueue.store.port import SentReply, Settlement, SettleReply, WorkerStore
from llmqueue_worker.attempt import Attempt
from llmqueue_worker.batching import Batcher
from llmqueue_worker.metrics import Stats


class Refused(NotSent):
    """The store said no, and has taken the job back."""

    def __init__(self, reason: RefusalReason) -> None:
        super().__init__(str(reason))
        self.reason = reason


class Unanswered(NotSent):
    """The store gave no answer: it may hold the job as sent, though nothing leaves."""


class Recorder:
    """Three batchers on one queue of the store.

    `waiting_ended`: gives up on jobs that would only be given back; their leases end by themselves.
    """

    def __init__(
        self,
        store: WorkerStore,
        queue: str,
        stats: Stats,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._store, self._queue, self._stats = store, queue, stats
        self.waiting_ended = False
        self._sent = Batcher[Attempt, SentReply]("sent", self._mark, patience=_not_again)
        self._settled = Batcher[Settlement, SettleReply](
            "settle", self._settle, patience=_for_ever, sleep=sleep
        )
        self._released = Batcher[tuple[str, str], None](
            "release", self._release, patience=self._while_waiting, sleep=sleep
        )
        stats.batchers = {
            **stats.batchers,
            "sent": self._sent,
            "settle": self._settled,
            "release": self._released,
        }

    async def ask(self, attempt: Attempt) -> None:
        """May this attempt's request leave now? Raises Refused or Unanswered."""
        try:
            reply = await self._sent.submit(attempt)
        except StoreError as exc:
            self._stats.refused["unanswered"] += 1
            raise Unanswered(str(exc)) from exc
        if not reply.ok:
            reason = reply.reason or RefusalReason.STALE
            self._stats.refused[reason] += 1
            raise Refused(reason)

    async def settle(self, settlement: Settlement) -> SettleReply:
        """Record it, repeated until acknowledged."""
        return await self._settled.submit(settlement)

    async def release(self, attempt: Attempt) -> None:
        """Give an attempt back whose request did not and will not leave."""
        try:
            await self._released.submit((attempt.grant.id, attempt.grant.fence))
        except StoreError:
            return

    async def close(self) -> None:
        for batcher in (self._sent, self._settled, self._released):
            await batcher.close()

    async def _mark(self, attempts: Sequence[Attempt]) -> list[SentReply]:
        """One script for each credential: two for a moment after a key was replaced."""
        by_credential: dict[str, list[int]] = {}
        for n, attempt in enumerate(attempts):
            by_credential.setdefault(attempt.credential.fingerprint, []).append(n)
        replies: dict[int, SentReply] = {}
        for credential, numbers in by_credential.items():
            pairs = [(attempts[n].grant.id, attempts[n].grant.fence) for n in numbers]
            answers = await self._store.mark_sent(self._queue, pairs, credential=credential)
            replies.update(zip(numbers, answers, strict=True))
        return [replies[n] for n in range(len(attempts))]

    async def _settle(self, items: Sequence[Settlement]) -> list[SettleReply]:
        return await self._store.settle(self._queue, items)

    async def _release(self, items: Sequence[tuple[str, str]]) -> list[None]:
        await self._store.release(self._queue, items)
        return [None] * len(items)

    def _while_waiting(self, _item: tuple[str, str], error: Exception) -> Exception | None:
        return _as_store_error(error) if self.waiting_ended else None


def _as_store_error(error: Exception) -> StoreError:
    return error if isinstance(error, StoreError) else StoreUnavailable(repr(error))


def _not_again(_item: Attempt, error: Exception) -> Exception | None:
    return _as_store_error(error)


def _for_ever(_item: Settlement, _error: Exception) -> Exception | None:
    return None
