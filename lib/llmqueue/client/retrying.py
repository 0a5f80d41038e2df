"""Sitting out an outage of the store."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from llmqueue.errors import StoreUnavailable

DEFAULT_RETRY_SECONDS = 10.0
MOST_RETRY_SECONDS = 60.0
"""The store forgets no job sooner than two minutes after its enqueue: a repeat finds it there."""
_FIRST_PAUSE_SECONDS, _MOST_PAUSE_SECONDS = 0.05, 2.0

T = TypeVar("T")


def pauses() -> Callable[[], float]:
    """Seconds to wait before each next try: doubled, with jitter."""
    longest = _FIRST_PAUSE_SECONDS

    def pause() -> float:
        nonlocal longest
        now, longest = longest, min(2 * longest, _MOST_PAUSE_SECONDS)
        return now * random.uniform(0.5, 1)

    return pause


async def retried(call: Callable[[], Awaitable[T]], *, seconds: float) -> T:
    """Repeat a call that may run twice while the store is unavailable, for `seconds` at most."""
    until, pause = time.monotonic() + seconds, pauses()
    while True:
        try:
            return await call()
        except StoreUnavailable:
            wait = pause()
            if time.monotonic() + wait > until:
                raise
            await asyncio.sleep(wait)
