"""One tick of the local control loop on a real store."""

from __future__ import annotations

from datetime import UTC, datetime

from llmqueue.config import Limit
from llmqueue.states import LimitUnit
from llmqueue.store import RedisStore
from support.localcontrol import controller
from support.storebench import StoreBench
from support.valkey import ValkeyServer

JOBS = 200


async def test_a_tick_lets_housekeeping_catch_up() -> None:
    """Jobs that are due all at once are ready after one tick, though each look moves only a few."""
    async with ValkeyServer() as server:
        store = RedisStore(server.url)
        bench = StoreBench(store)
        await bench.configure(queue={"suspended": True})
        await bench.enqueue(JOBS, delay_seconds=5.0)
        await bench.advance(6)
        await controller(bench).tick()
        assert await bench.states() == {"ready": JOBS}
        await store.close()


async def test_days_are_listed_anew_each_month() -> None:
    """Long before the list ends, and without a restart."""
    async with ValkeyServer() as server:
        store = RedisStore(server.url)
        bench = StoreBench(store)
        day = Limit(LimitUnit.REQUESTS, 100, 86_400, "America/Los_Angeles")
        await bench.configure(budget={"limits": (day,)})
        times = [datetime(2026, 11, 30, 23, 59, tzinfo=UTC).timestamp()]
        found = controller(bench, wall_clock=lambda: times[-1])
        await found.tick()
        await bench.redis.delete("llmqueue:registry")
        await found.tick()
        assert not await bench.redis.exists("llmqueue:registry")
        times.append(datetime(2026, 12, 1, tzinfo=UTC).timestamp())
        await found.tick()
        assert await bench.redis.exists("llmqueue:registry")
        await store.close()
