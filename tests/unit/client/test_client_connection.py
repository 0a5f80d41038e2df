"""Many callers of one client in an outage."""

from __future__ import annotations

import asyncio

import pytest

from llmqueue.client.connection import Connection
from llmqueue.errors import StoreUnavailable
from support.memorystore import MemoryStore

CALLERS = 100


async def test_who_sits_an_outage_out_keeps_nobody_waiting() -> None:
    """Each is told after its own `retry_seconds`, not after those of all before it."""
    connection = Connection(MemoryStore(), retry_seconds=0.2)  # type: ignore[arg-type]
    tried: set[int] = set()
    tried_before_anybody_gave_up: list[int] = []

    async def caller(number: int) -> None:
        async def call() -> None:
            tried.add(number)
            raise StoreUnavailable("away")

        with pytest.raises(StoreUnavailable):
            await connection.ask(call)
        tried_before_anybody_gave_up.append(len(tried))

    await asyncio.gather(*map(caller, range(CALLERS)))
    assert tried_before_anybody_gave_up[0] == CALLERS
