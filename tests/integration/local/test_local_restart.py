"""What a new `up` knows of the one before it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from llmqueue.store import RedisStore
from llmqueue_operator.planning.history import BASE_GRANTS
from support.localcontrol import controller
from support.storebench import QUEUE, StoreBench, drain_queue
from support.valkey import ValkeyServer

CALL_SECONDS = 8.0


@pytest.fixture
async def bench() -> AsyncIterator[StoreBench]:
    """A queue with a history of short calls."""
    async with ValkeyServer() as server:
        store = RedisStore(server.url)
        bench = StoreBench(store)
        await bench.configure()
        await bench.warm()
        await bench.enqueue(BASE_GRANTS)
        while await bench.states() != {"succeeded": BASE_GRANTS}:
            await drain_queue(bench)
            await bench.advance(1)
        yield bench
        await store.close()


async def test_a_restart_keeps_the_call_time_and_starts_no_worker_for_it(bench: StoreBench) -> None:
    """S34: of the last 200 calls, not of all that ever were; six workers ended with `up`."""
    await bench.store.write_plan(QUEUE, {"desired": 6, "slot_seconds": CALL_SECONDS})
    up = controller(bench)
    await up.tick()
    assert up.plans[QUEUE].slot_seconds == pytest.approx(CALL_SECONDS, rel=0.01)
    assert (up.plans[QUEUE].target, up.pools[QUEUE].alive) == (0, 0)


async def test_an_orderly_end_keeps_it_too(bench: StoreBench) -> None:
    await bench.store.write_plan(QUEUE, {"slot_seconds": CALL_SECONDS})
    before = controller(bench)
    await before.tick()
    await before.write_stopped()
    after = controller(bench)
    await after.tick()
    assert after.plans[QUEUE].slot_seconds == pytest.approx(CALL_SECONDS, rel=0.01)


async def test_a_queue_that_nobody_planned_has_nothing_to_recall(bench: StoreBench) -> None:
    up = controller(bench)
    await up.tick()
    assert 0 < up.plans[QUEUE].slot_seconds < 1
