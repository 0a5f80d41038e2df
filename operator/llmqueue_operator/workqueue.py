"""Keys that want attention, each once, not before its time."""

from __future__ import annotations

import asyncio
import heapq
import random
from collections.abc import Callable

_FIRST_SECONDS = 0.5
_MOST_SECONDS = 60.0


class WorkQueue:
    """A set of keys with due times. A key that is being worked on is not handed out again; what is
    added meanwhile follows when it is done.

    `clock` is monotonic, in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._due: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []
        self._working: set[str] = set()
        self._failures: dict[str, int] = {}
        self._added = asyncio.Event()

    def add(self, key: str, *, delay: float = 0.0) -> None:
        """Have the key come at the latest after `delay`; an earlier time stays."""
        due = self._clock() + delay
        if key in self._due and (self._due[key] <= due or key in self._failures):
            return  # also: what has failed waits, whatever happens meanwhile
        self._due[key] = due
        if key not in self._working:
            self._schedule(key)

    def _schedule(self, key: str) -> None:
        heapq.heappush(self._heap, (self._due[key], key))
        self._added.set()

    def failed(self, key: str) -> float:
        """Come again after a growing pause, which is returned."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        pause: float = min(_MOST_SECONDS, _FIRST_SECONDS * 2.0 ** min(failures, 10))
        pause *= random.uniform(0.75, 1.25)
        self._due.pop(key, None)  # also where something happened meanwhile
        self.add(key, delay=pause)
        return pause

    def done(self, key: str, *, succeeded: bool = True) -> None:
        """The key may be handed out again."""
        self._working.discard(key)
        if succeeded:
            self._failures.pop(key, None)
        if key in self._due:
            self._schedule(key)

    def drop(self, key: str) -> None:
        self._due.pop(key, None)
        self._failures.pop(key, None)

    def clear(self) -> None:
        """Forget everything; nothing may be worked on any more."""
        self._working.clear()
        self._due.clear()
        self._heap.clear()
        self._failures.clear()

    async def take(self) -> list[str]:
        """Wait until something is due; returns all that is, now being worked on."""
        while True:
            self._added.clear()
            found = self._take_due()
            if found:
                return found
            pause = self._heap[0][0] - self._clock() if self._heap else None
            try:
                async with asyncio.timeout(None if pause is None else max(0.0, pause)):
                    await self._added.wait()
            except TimeoutError:
                continue

    def _take_due(self) -> list[str]:
        now, found = self._clock(), list[str]()
        while self._heap and self._heap[0][0] <= now:
            due, key = heapq.heappop(self._heap)
            if self._due.get(key) != due or key in self._working:
                continue  # another time took its place, it was dropped, or its end schedules it
            del self._due[key]
            self._working.add(key)
            found.append(key)
        return found
