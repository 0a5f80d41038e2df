"""One tick of the local control loop on a real store."""

from __future__ import annotations

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
