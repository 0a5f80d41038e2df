"""When the planner is told that work appeared: of an idle queue it would not look by itself."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from llmqueue.errors import QueueFull
from support.storebench import StoreBench


class Ear:
    """Hears what is published, in order."""

    def __init__(self, subscription: Any) -> None:
        self._subscription = subscription

    async def heard(self) -> list[str]:
        """Since the last time; what was published before is here, since Redis keeps the order."""
        found = []
        await self._subscription.ping()
        while True:
            message = await self._subscription.get_message(timeout=5.0)
            assert message is not None, "not even the answer to a ping"
            if message["type"] == "pong":
                return found
            if message["type"] == "message":
                found.append(message["data"].decode())


@pytest.fixture
async def ear(bench: StoreBench) -> AsyncIterator[Ear]:
    client = bench.store._redis.subscriber()
    async with client.pubsub() as subscription:
        await subscription.subscribe("llmqueue:wake")
        yield Ear(subscription)
    await client.aclose()


async def test_the_first_ready_job(bench: StoreBench, ear: Ear) -> None:
    """S29: 0 → 300: one message, not three hundred."""
    await bench.enqueue(300)
    assert await ear.heard() == [bench.queue]
    await bench.enqueue()
    assert await ear.heard() == []


async def test_the_first_delayed_job(bench: StoreBench, ear: Ear) -> None:
    """Nobody looks at an idle queue for a while; the planner must know when to look."""
    await bench.enqueue(delay_seconds=30)
    assert await ear.heard() == [bench.queue]
    await bench.enqueue(delay_seconds=5)
    assert await ear.heard() == []


async def test_the_first_of_each_kind(bench: StoreBench, ear: Ear) -> None:
    await bench.enqueue()
    await bench.enqueue(delay_seconds=30)
    assert await ear.heard() == [bench.queue, bench.queue]
    await bench.enqueue()
    await bench.enqueue(delay_seconds=30)
    assert await ear.heard() == []


async def test_both_kinds_at_once_are_one_message(bench: StoreBench, ear: Ear) -> None:
    await bench.store.enqueue([bench.new(), bench.new(delay_seconds=30)])
    assert await ear.heard() == [bench.queue]


async def test_after_the_last_one_was_taken(bench: StoreBench, ear: Ear) -> None:
    await bench.enqueue()
    await bench.run_one()
    assert await ear.heard() == [bench.queue]
    await bench.enqueue()
    assert await ear.heard() == [bench.queue]


async def test_what_was_there_already_is_no_news(bench: StoreBench, ear: Ear) -> None:
    """A producer that repeats an enqueue adds nothing."""
    await bench.enqueue(key="k")
    await bench.run_one()
    await ear.heard()
    assert (await bench.enqueue_one(key="k")).duplicate
    assert await ear.heard() == []


async def test_a_refused_job_is_no_news(bench: StoreBench, ear: Ear) -> None:
    await bench.configure(queue={"max_jobs": 1})
    with pytest.raises(QueueFull):
        await bench.store.enqueue([bench.new(), bench.new(delay_seconds=5)])
    assert await ear.heard() == []
