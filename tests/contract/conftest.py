"""One real store of each topology for all contract tests of a process, emptied before each."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from llmqueue.store import RedisStore
from support.storebench import StoreBench

TOPOLOGIES = ("server", "sentinel", "cluster")
ONE_SERVER = "test_state_machine.py"
"""It reads raw structures after each of thousands of steps; what a topology changes is between the
steps, where the other tests look."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "valkey_url" in metafunc.fixturenames:
        kinds = TOPOLOGIES[:1] if metafunc.definition.path.name == ONE_SERVER else TOPOLOGIES
        metafunc.parametrize("valkey_url", kinds, indirect=True, scope="session")


@pytest.fixture
async def bench(valkey_url: str) -> AsyncIterator[StoreBench]:
    """A configured queue without binding limits."""
    store = RedisStore(valkey_url)
    await store._redis.client.flushall()
    bench = StoreBench(store)
    await bench.configure()
    yield bench
    await store.close()
