"""Sitting out an outage: how long, and of what."""

from __future__ import annotations

import pytest

from llmqueue.client.retrying import pauses, retried
from llmqueue.errors import IdempotencyConflict, QueueFull, StoreMisconfigured, StoreUnavailable


async def test_an_outage_is_sat_out() -> None:
    calls = 0

    async def call() -> str:
        nonlocal calls
        calls += 1
        if calls < 3:
            raise StoreUnavailable("away")
        return "there"

    assert await retried(call, seconds=5) == "there"
    assert calls == 3


@pytest.mark.parametrize(
    "error", [QueueFull("full"), IdempotencyConflict("other"), StoreMisconfigured("password")]
)
async def test_nothing_else_is_repeated(error: Exception) -> None:
    calls = 0

    async def call() -> None:
        nonlocal calls
        calls += 1
        raise error

    with pytest.raises(type(error)):
        await retried(call, seconds=5)
    assert calls == 1


async def test_no_patience_means_one_try() -> None:
    calls = 0

    async def call() -> None:
        nonlocal calls
        calls += 1
        raise StoreUnavailable("away")

    with pytest.raises(StoreUnavailable):
        await retried(call, seconds=0)
    assert calls == 1


def test_pauses_are_doubled_within_bounds_and_spread() -> None:
    pause = pauses()
    waits = [pause() for _ in range(12)]
    for number, wait in enumerate(waits):
        longest = min(0.05 * 2**number, 2)
        assert longest / 2 <= wait <= longest
    assert len(set(waits)) == 12
