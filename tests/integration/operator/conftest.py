"""The shared server, emptied before each test of this folder, and connections to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from llmqueue.store import RedisStore
from llmqueue_operator.connections import Connections


@pytest.fixture
async def store(valkey_url: str) -> AsyncIterator[RedisStore]:
    """Another client's view of the server."""
    store = RedisStore(valkey_url)
    await store._redis.client.flushall()
    await store._redis.client.config_set("maxmemory", 0)
    yield store
    await store._redis.client.config_set("maxmemory", 0)
    await store.close()


def settle(folder: Path, name: str, url: str) -> None:
    """Write a connection's settings as a mounted Secret shows them."""
    (folder / name).mkdir(exist_ok=True)
    (folder / name / "url").write_text(url + "\n")


@pytest.fixture
async def connections(tmp_path: Path, valkey_url: str) -> AsyncIterator[Connections]:
    """`default` is the server, `away` a port where nobody answers."""
    settle(tmp_path, "default", valkey_url)
    settle(tmp_path, "away", "redis://127.0.0.1:1/0")
    found = Connections(tmp_path)
    yield found
    await found.close()
