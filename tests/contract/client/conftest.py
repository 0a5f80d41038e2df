"""A client on the server that the store's tests use, and a worker that does what it is told."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from llmqueue.client import Client
from support.clientbench import ClientBench
from support.storebench import StoreBench


@pytest.fixture
async def clients(bench: StoreBench, valkey_url: str) -> AsyncIterator[ClientBench]:
    async with Client.connect(valkey_url) as client:
        yield ClientBench(client, bench, valkey_url)
