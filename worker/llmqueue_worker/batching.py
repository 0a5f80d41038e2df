"""Many small requests to the store as few scripts: one in flight at a time, all that arrive
meanwhile go together in the next.

Nothing waits for a batch to fill, so an idle process loses no time, and a busy one needs a fraction
of the scripts.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

import structlog

from llmqueue.endings import end
from llmqueue.errors import StoreUnavailable
from llmqueue_worker.backoff import Backoff

Item = TypeVar("Item")
Reply = TypeVar("Reply")
MOST_ITEMS = 16
"""A call with more would keep the server from others for too long; with fewer of them in each, the
server works on one while this process works on another."""

_log = structlog.get_logger()


class Batcher(Generic[Item, Reply]):
    """`submit(item)` → a future of its reply.

    Args:
        name: of the requests, for logs.
        run: one batch; its replies have the order of its items.
        patience: asked after each failure, `(item, error) -> exception | None`: what the item's
            waiter gets; None = it is tried again, for as long as it takes.
        sleep: replaced by tests.
    """

    def __init__(
        self,
        name: str,
        run: Callable[[Sequence[Item]], Awaitable[Sequence[Reply]]],
        *,
        patience: Callable[[Item, Exception], Exception | None],
        most: int = MOST_ITEMS,
        backoff: Backoff | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._name, self._run, self._patience, self._most = name, run, patience, most
        self._backoff = backoff or Backoff()
        self._sleep = sleep
        self._queue: deque[tuple[Item, asyncio.Future[Reply]]] = deque()
        self._single = 0
        self._driver: asyncio.Task[None] | None = None
        self.batches = 0
        self.items = 0
        self.failures = 0

    def submit(self, item: Item) -> asyncio.Future[Reply]:
        """Queue an item. Cancelling the future takes back an item that is still queued."""
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._queue.append((item, future))
        if self._driver is None:
            self._driver = asyncio.create_task(self._drive(), name=f"batcher-{self._name}")
        return future

    async def close(self) -> None:
        """Stop trying; items that are left get no reply."""
        driver, self._driver = self._driver, None
        if driver is not None:
            await end(driver)

    async def _drive(self) -> None:
        try:
            while batch := self._next():
                await self._attempt(batch)
        finally:
            self._driver = None

    def _next(self) -> list[tuple[Item, asyncio.Future[Reply]]]:
        batch: list[tuple[Item, asyncio.Future[Reply]]] = []
        most = 1 if self._single else self._most
        while self._queue and len(batch) < most:
            pair = self._queue.popleft()
            if not pair[1].done():
                batch.append(pair)
        self._single = max(0, self._single - 1)
        return batch

    async def _attempt(self, batch: list[tuple[Item, asyncio.Future[Reply]]]) -> None:
        try:
            replies = await self._run([item for item, _ in batch])
        except Exception as exc:  # an edge: whatever it was, no item may be forgotten
            await self._failed(batch, exc)
            return
        self.batches += 1
        self.items += len(batch)
        self._backoff.reset()
        for (_, future), reply in zip(batch, replies, strict=True):
            if not future.done():
                future.set_result(reply)

    async def _failed(
        self, batch: list[tuple[Item, asyncio.Future[Reply]]], error: Exception
    ) -> None:
        self.failures += 1
        level = "warning" if isinstance(error, StoreUnavailable) else "error"
        getattr(_log, level)(
            "store-request-failed", request=self._name, items=len(batch), error=repr(error)
        )
        left: list[tuple[Item, asyncio.Future[Reply]]] = []
        for item, future in batch:
            refusal = self._patience(item, error)
            if future.done():
                continue
            if refusal is None:
                left.append((item, future))
            else:
                future.set_exception(refusal)
        if not left:
            return
        if isinstance(error, StoreUnavailable):
            self._queue.extendleft(reversed(left))
        elif len(left) > 1:
            # One item may be what the store cannot take: one by one, the others get through.
            self._queue.extendleft(reversed(left))
            self._single = len(left)
        else:
            self._queue.extend(left)
        await self._sleep(self._backoff.next())
