"""Natural batching: one script in flight, and what arrives meanwhile goes together in the next."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")

MAX_BATCH = 32
"""Bounds how long one script blocks the server."""


class Batcher(Generic[Item, Answer]):
    """`await submit(item)` gives the item's own answer.

    An exception of `run` reaches every item of its batch.
    """

    def __init__(
        self, run: Callable[[Sequence[Item]], Awaitable[Sequence[Answer]]], *, most: int = MAX_BATCH
    ) -> None:
        self._run = run
        self._most = most
        self._waiting: list[tuple[Item, asyncio.Future[Answer]]] = []
        self._task: asyncio.Task[None] | None = None

    async def submit(self, item: Item) -> Answer:
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if self._task is None:
            self._task = asyncio.create_task(self._work())
        return await future

    async def _work(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
                await self._one(batch)
        finally:
            self._task = None

    async def _one(self, batch: list[tuple[Item, asyncio.Future[Answer]]]) -> None:
        try:
            answers = await self._run([item for item, _ in batch])
        except Exception as exc:
            for _, future in batch:
                if not future.done():
                    future.set_exception(exc)
            return
        for (_, future), answer in zip(batch, answers, strict=True):
            if not future.done():
                future.set_result(answer)
