"""What handles share of their client: its store, its patience, and what it waits for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from llmqueue.client.retrying import DEFAULT_RETRY_SECONDS, MOST_RETRY_SECONDS, retried
from llmqueue.client.watching import Watch, Watcher
from llmqueue.errors import UsageError
from llmqueue.store.port import IntakeStore

_CALLS_AT_ONCE = 16
"""Each call in flight has a connection; a thousand waiting handles must not open a thousand."""

T = TypeVar("T")


class Connection:
    """One client's way to the store."""

    def __init__(self, store: IntakeStore, *, retry_seconds: float = DEFAULT_RETRY_SECONDS) -> None:
        if not 0 <= retry_seconds <= MOST_RETRY_SECONDS:
            raise UsageError(
                f"retry_seconds: {retry_seconds:g} is not between 0 and {MOST_RETRY_SECONDS:g}"
            )
        self.store = store
        self._retry_seconds = retry_seconds
        self._watcher = Watcher(store)
        self._turns = asyncio.Semaphore(_CALLS_AT_ONCE)

    async def ask(self, call: Callable[[], Awaitable[T]]) -> T:
        """A call that may run twice; an outage of `retry_seconds` is sat out.

        Raises StoreUnavailable after it, and what the call raises.
        """

        async def in_turn() -> T:
            async with self._turns:  # not while it pauses: others may try meanwhile
                return await call()

        return await retried(in_turn, seconds=self._retry_seconds)

    @asynccontextmanager
    async def watch(self, subject: str) -> AsyncGenerator[Watch]:
        """News of a job or batch. Raises UnknownJob."""
        budget = await self.ask(lambda: self.store.budget_of(subject))
        async with self._watcher.watch(budget, subject) as watch:
            yield watch

    async def close(self) -> None:
        await self._watcher.close()
