"""Waiting for jobs and batches: one reader of news for each budget, and a look at what was silent.

News are quick and may be lost: the stream is capped, and written only while somebody listens. So
each subject that is waited for is looked up when waiting begins, after a gap, and when nothing was
heard of it for a while; many at once, so that a thousand waiting handles cost a few calls.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from llmqueue.client.retrying import pauses
from llmqueue.endings import end
from llmqueue.errors import StoreError, UsageError
from llmqueue.store.port import EventStore, News

_LISTEN_SECONDS = 30.0
_RENEW_SECONDS = 10.0
_BLOCK_SECONDS = 2.0
_CANCEL_SECONDS = 0.05
_LOOK_SECONDS = 5.0
_LOOK_IDS = 100
NEVER = float("-inf")
_log = logging.getLogger(__name__)


def position(stream_id: str) -> tuple[int, int]:
    """Where an id stands in the order of news; "" is before all."""
    first, _, second = stream_id.partition("-")
    return int(first or 0), int(second or 0)


class Watch:
    """What is heard of one subject, in order: news, or None where there is no such subject."""

    def __init__(self, subject: str) -> None:
        self.subject = subject
        self.heard_at = NEVER
        """When something was last known of it, on the monotonic clock."""
        self._news: asyncio.Queue[News | None] = asyncio.Queue()
        self._closed = False

    def tell(self, news: News | None) -> None:
        self.heard_at = time.monotonic()
        self._news.put_nowait(news)

    def close(self) -> None:
        self._closed = True
        self._news.put_nowait(None)

    async def next(self) -> News | None:
        """Raises UsageError once the client is closed."""
        news = await self._news.get()
        if self._closed:
            raise UsageError("the client was closed: keep it open while something waits by it")
        return news


class Watcher:
    """All that one client waits for."""

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self._feeds: dict[str, _Feed] = {}

    @asynccontextmanager
    async def watch(self, budget: str, subject: str) -> AsyncGenerator[Watch]:
        """News of a job or batch, its present standing first."""
        feed = self._feeds.setdefault(budget, _Feed(self._store, budget))
        watch = Watch(subject)
        feed.add(watch)
        try:
            yield watch
        finally:
            feed.remove(watch)

    async def close(self) -> None:
        for feed in self._feeds.values():
            await feed.close()


class _Feed:
    """News of one budget, fanned out to those who watch, read while anybody does."""

    def __init__(self, store: EventStore, budget: str) -> None:
        self._store = store
        self._budget = budget
        self._watches: dict[str, list[Watch]] = {}
        self._after = ""
        self._listening = asyncio.Event()
        self._wanted = asyncio.Event()
        """There is something to be looked up now."""
        self._task: asyncio.Task[None] | None = None

    def add(self, watch: Watch) -> None:
        self._watches.setdefault(watch.subject, []).append(watch)
        self._wanted.set()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name=f"llmqueue news of {self._budget}")

    def remove(self, watch: Watch) -> None:
        here = self._watches[watch.subject]
        here.remove(watch)
        if not here:
            del self._watches[watch.subject]

    async def close(self) -> None:
        for watch in [watch for each in self._watches.values() for watch in each]:
            watch.close()
        if self._task is not None:
            await end(self._task, again_seconds=_CANCEL_SECONDS)

    async def _run(self) -> None:
        """Ends by itself a moment after the last watch."""
        self._after = ""
        self._listening.clear()
        pause = pauses()
        while self._watches:
            looking = asyncio.create_task(self._look(), name=f"llmqueue looks at {self._budget}")
            try:
                await self._read()
            except Exception:
                _log.exception("watching %s failed; it begins anew", self._budget)
                await asyncio.sleep(pause())
            finally:
                looking.cancel()

    # ------------------------------------------------------------ news

    async def _read(self) -> None:
        pause, away = pauses(), False
        while self._watches:
            try:
                await self._listen()
                if away:
                    _log.info("news of %s are read again", self._budget)
                pause, away = pauses(), False
                await self._read_for(_RENEW_SECONDS)
            except StoreError as exc:
                if not away:
                    _log.warning("news of %s cannot be read: %s", self._budget, exc)
                away = True
                await asyncio.sleep(pause())

    async def _listen(self) -> None:
        listening = await self._store.listen(self._budget, _LISTEN_SECONDS)
        if not self._after or position(listening.after) < position(self._after):
            # Now, or because a server that lost its stream begins anew.
            self._after = listening.after
        if not (listening.gapless and self._listening.is_set()):
            self._look_at_all()
        self._listening.set()

    async def _read_for(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while self._watches and time.monotonic() < until:
            news, self._after = await self._store.news(
                self._budget, self._after, wait_seconds=_BLOCK_SECONDS
            )
            for each in news:
                for watch in self._watches.get(each.subject, ()):
                    watch.tell(each)

    # ------------------------------------------------------------ looking up

    def _look_at_all(self) -> None:
        for watches in self._watches.values():
            for watch in watches:
                watch.heard_at = NEVER
        self._wanted.set()

    async def _look(self) -> None:
        """Only once news are written: what happened between a look and that would go unheard."""
        pause = pauses()
        while True:
            try:
                async with asyncio.timeout(_LOOK_SECONDS):
                    await self._listening.wait()
                    await self._wanted.wait()
            except TimeoutError:
                pass
            self._wanted.clear()
            silent = [w for each in self._watches.values() for w in each if _is_due(w)]
            try:
                for start in range(0, len(silent), _LOOK_IDS):
                    await self._look_at(silent[start : start + _LOOK_IDS])
                pause = pauses()
            except Exception as exc:
                if not isinstance(exc, StoreError):
                    _log.exception("looking at %s failed; it is tried again", self._budget)
                await asyncio.sleep(pause())
                self._wanted.set()

    async def _look_at(self, watches: Sequence[Watch]) -> None:
        heard, after = [watch.heard_at for watch in watches], self._after
        found = await self._store.standings(self._budget, [watch.subject for watch in watches])
        for watch, before, standing in zip(watches, heard, found, strict=True):
            if watch.heard_at != before:
                continue  # news came meanwhile: they may be newer than this answer
            now = time.time()
            watch.tell(
                News(after, watch.subject, standing.state, standing.progress, now)
                if standing
                else None
            )


def _is_due(watch: Watch) -> bool:
    return time.monotonic() - watch.heard_at >= _LOOK_SECONDS
