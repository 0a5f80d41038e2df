"""A server, a provider and a queue for each test, and the workers it starts."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from llmqueue.store import RedisStore
from support.rawprovider import RawProvider
from support.storebench import StoreBench
from support.valkey import ValkeyServer
from support.workerbench import WorkerBench


@pytest.fixture
async def bench() -> AsyncIterator[WorkerBench]:
    async with ValkeyServer() as server, RawProvider() as provider:
        store = RedisStore(server.url)
        jobs = StoreBench(store)
        await jobs.configure()
        bench = WorkerBench(server, jobs, provider)
        try:
            yield bench
        finally:
            await bench.close()
            await store.close()
