"""A client and simulated providers in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2
import pytest

from llmqueue_cli.simulate.options import ProviderOptions
from llmqueue_cli.simulate.provider import FakeProvider


@pytest.fixture
async def http() -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(timeout=10, trust_env=False) as client:
        yield client


@pytest.fixture
async def fake() -> AsyncIterator[FakeProvider]:
    async with FakeProvider(ProviderOptions()) as provider:
        yield provider


@pytest.fixture
async def anthropic() -> AsyncIterator[FakeProvider]:
    async with FakeProvider(ProviderOptions(shape="anthropic")) as provider:
        yield provider
