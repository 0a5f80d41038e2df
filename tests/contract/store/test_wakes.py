"""When the planner is told that work appeared: of an idle queue it would not look by itself."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from llmqueue.errors import QueueFull
from llmqueue.store import keys
from support.storebench import StoreBench

MARK = "that was all"


class Ear:
    """Hears what is published, in order."""

    def __init__(self, bench: StoreBench, subscription: Any) -> None:
        self._bench, self._subscription = bench, subscription

    async def heard(self) -> list[str]:
        """Since the last time; what its server published before the mark comes before it."""
        publish = ("PUBLISH", keys.WAKE_CHANNEL, MARK)
        await self._bench.store._redis.topology.ask([(self._bench.key("cfg"), publish)])
        found = []
        while True:
            message = await self._subscription.get_message(timeout=5.0)
            assert message is not None, "not even the mark"
            if message["type"] == "message":
                if message["data"].decode() == MARK:
                    return found
                found.append(message["data"].decode())


@pytest.fixture
async def ear(bench: StoreBench) -> AsyncIterator[Ear]:
    client = bench.store._redis.subscriber()
    async with client.pubsub() as subscription:
        await subscription.subscribe(keys.WAKE_CHANNEL)
        yield Ear(bench, subscription)
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
