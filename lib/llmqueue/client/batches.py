"""A batch that was enqueued, as its producer goes on with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from functools import partial

from llmqueue.batch import BatchView
from llmqueue.client.connection import Connection
from llmqueue.errors import UnknownBatch, UnknownJob
from llmqueue.job import JobView

_PAGE_JOBS = 100
_CANCEL_JOBS = 50
"""Cancelled by one script call, which others wait for."""


class BatchHandle:
    """One batch, by its id; `client.batch_handle(id)` gives a handle again, anywhere."""

    __slots__ = ("_connection", "id")

    def __init__(self, connection: Connection, batch_id: str) -> None:
        self._connection = connection
        self.id = batch_id

    def __repr__(self) -> str:
        return f"BatchHandle({self.id!r})"

    async def progress(self) -> BatchView:
        """How far it is. Raises UnknownBatch, StoreUnavailable."""
        return await self._connection.ask(lambda: self._connection.store.batch(self.id))

    async def wait(self, timeout_seconds: float | None = None) -> BatchView:
        """Wait for its end: all its jobs have ended. One in review keeps it open.

        Raises TimeoutError (the batch goes on), UnknownBatch.
        """
        async with asyncio.timeout(timeout_seconds):
            try:
                async with self._connection.watch(self.id) as watch:
                    while (news := await watch.next()) is not None:
                        if news.state.terminal:
                            return await self.progress()
            except UnknownJob:
                pass
        raise UnknownBatch(f"no batch {self.id!r}, or its retention is over")

    async def job_ids(self) -> AsyncGenerator[str]:
        """Ids of its jobs in the order of their enqueueing."""
        store, offset = self._connection.store, 0
        while True:
            page = await self._connection.ask(
                partial(store.batch_jobs, self.id, offset=offset, limit=_PAGE_JOBS)
            )
            for job_id in page:
                yield job_id
            offset += len(page)
            if len(page) < _PAGE_JOBS:
                return

    async def results(self) -> AsyncGenerator[tuple[str, JobView]]:
        """(job id, view) of all its jobs as they are now, in order; `view.result` has the bytes.

        Those whose retention is over are left out.
        """
        page: list[str] = []
        async for job_id in self.job_ids():
            page.append(job_id)
            if len(page) == _PAGE_JOBS:
                for view in await self._views(page):
                    yield view.id, view
                page = []
        for view in await self._views(page):
            yield view.id, view

    async def _views(self, ids: list[str]) -> list[JobView]:
        return [view for view in await asyncio.gather(*map(self._view, ids)) if view is not None]

    async def _view(self, job_id: str) -> JobView | None:
        try:
            return await self._connection.ask(lambda: self._connection.store.job(job_id))
        except UnknownJob:
            return None

    async def cancel(self) -> BatchView:
        """Take no more jobs, and cancel all that have not ended: running calls are stopped by their
        workers. What follows a batch still follows. Raises UnknownBatch, StoreUnavailable."""
        store, offset, seen = self._connection.store, 0, _CANCEL_JOBS
        while seen == _CANCEL_JOBS:
            seen = await self._connection.ask(
                partial(store.cancel_batch, self.id, offset=offset, limit=_CANCEL_JOBS)
            )
            offset += seen
        return await self.progress()
