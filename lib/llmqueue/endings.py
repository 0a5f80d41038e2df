"""The end of tasks that talk to the store."""

from __future__ import annotations

import asyncio
from typing import Any

AGAIN_SECONDS = 3.0
"""Longer than a task in order takes to end: one that is ending must not be interrupted in it."""


async def end(*tasks: asyncio.Task[Any], again_seconds: float = AGAIN_SECONDS) -> None:
    """Cancel tasks until they have ended, whatever they end with.

    Once is not enough: redis-py may swallow a cancellation that falls into its connecting, and a
    loop around it would go on for ever.
    """
    left = {task for task in tasks if not task.done()}
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=again_seconds)
    for task in tasks:
        if not task.cancelled():
            task.exception()  # looked at: nobody else will
