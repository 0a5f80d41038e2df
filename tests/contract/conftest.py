"""One real server for all contract tests of a process, emptied before each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from llmqueue.store import RedisStore
from support.storebench import StoreBench
from support.valkey import ValkeyServer


@pytest.fixture(scope="session")
def valkey_url() -> Iterator[str]:
    server = ValkeyServer()
    asyncio.run(server.start())
    try:
        yield server.url
    finally:
        asyncio.run(server.stop())


@pytest.fixture
async def bench(valkey_url: str) -> AsyncIterator[StoreBench]:
    """A configured queue without binding limits."""
    store = RedisStore(valkey_url)
    await store._redis.client.flushall()
    bench = StoreBench(store)
    await bench.configure()
    yield bench
    await store.close()
