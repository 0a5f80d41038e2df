"""How far a job is: at most one write a second, and the last one always."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

SPACING_SECONDS = 1.0
MAX_MESSAGE_CHARACTERS = 200


class Progress:
    """`write(fraction, message)` reaches the store; make it inside the event loop."""

    def __init__(self, write: Callable[[float, str], Awaitable[None]]) -> None:
        self._write = write
        self._loop = asyncio.get_running_loop()
        self._waiting: tuple[float, str] | None = None
        self._written_at = -SPACING_SECONDS
        self._later: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None

    async def show(self, fraction: float, message: str) -> None:
        """Raises ValueError for what is no fraction."""
        if not 0 <= fraction <= 1:
            raise ValueError(f"progress: a fraction from 0 to 1 is needed, got {fraction!r}")
        self._waiting = (float(fraction), message[:MAX_MESSAGE_CHARACTERS])
        due_in = self._written_at + SPACING_SECONDS - self._loop.time()
        if due_in <= 0:
            self._written_at = self._loop.time()
            await self._flush()
        elif self._later is None:
            self._later = self._loop.call_later(due_in, self._begin)

    def drop(self) -> None:
        """Write nothing any more."""
        if self._later is not None:
            self._later.cancel()
            self._later = None

    async def close(self) -> None:
        """Write what is not written yet."""
        self.drop()
        if self._writing is not None:
            await asyncio.wait({self._writing})
        await self._flush()

    def _begin(self) -> None:
        self._later = None
        self._written_at = self._loop.time()
        self._writing = self._loop.create_task(self._flush())

    async def _flush(self) -> None:
        if self._waiting is not None:
            (fraction, message), self._waiting = self._waiting, None
            await self._write(fraction, message)
