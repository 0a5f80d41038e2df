"""Strict queues: a step that is acknowledged is on disk, and on a replica where one is asked for."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from llmqueue.endings import end
from llmqueue.errors import StoreMisconfigured, StoreUnavailable
from llmqueue.store import RedisStore, connect
from support.storebench import StoreBench
from support.topologies import SentinelSet, ask
from support.valkey import ValkeyServer

ALWAYS = {"appendfsync": "always"}


@asynccontextmanager
async def strict_bench(url: str) -> AsyncIterator[StoreBench]:
    store = RedisStore(url)
    bench = StoreBench(store)
    await bench.configure(queue={"durability": "Strict"})
    yield bench
    await store.close()


@pytest.fixture
async def watched() -> AsyncIterator[SentinelSet]:
    async with SentinelSet(options=ALWAYS) as found:
        yield found


@asynccontextmanager
async def replicas_hang(watched: SentinelSet) -> AsyncIterator[None]:
    """They stay connected and acknowledge nothing; for less than their Sentinels bear."""
    replicas = await watched.replicas()
    for each in replicas:
        each.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for each in replicas:
            each.process.send_signal(signal.SIGCONT)


async def test_life_of_a_strict_job(watched: SentinelSet) -> None:
    async with strict_bench(watched.url) as bench:
        assert await bench.store.check() == []
        await bench.enqueue(3)
        for _ in range(3):
            await bench.run_one()
        assert await bench.states() == {"succeeded": 3}


Step = Callable[[StoreBench, Any], Awaitable[Any]]
STEPS: dict[str, Step] = {
    "enqueue": lambda bench, _: bench.enqueue(),
    "sent": lambda bench, grant: bench.send(grant),
    "settle": lambda bench, grant: bench.settle(grant),
    "release": lambda bench, grant: bench.store.release(bench.queue, [(grant.id, grant.fence)]),
    "cancel": lambda bench, grant: bench.store.cancel(grant.id),
    "suspend": lambda bench, _: bench.store.set_suspended(bench.queue, True),
    "configure": lambda bench, _: bench.configure(queue={"weight": 7}),
}


async def refused(bench: StoreBench, step: Step, grant: Any) -> str:
    with pytest.raises(StoreUnavailable) as error:
        await step(bench, grant)
    return str(error.value)


async def test_a_step_that_no_replica_has_is_not_acknowledged(watched: SentinelSet) -> None:
    """Neither is its repeat, which finds it done; once the replicas follow, the repeat counts."""
    store, other = RedisStore(watched.url), RedisStore(watched.url)
    benches = {name: StoreBench(store, f"default/{name}") for name in STEPS}
    grants = {}
    for name, bench in benches.items():
        bench.budget = replace(bench.budget, budget=bench.queue)
        bench.config = replace(bench.config, queue=bench.queue, budget=bench.queue)
        await bench.configure(queue={"durability": "Strict"})
        await bench.enqueue()
        grants[name] = await bench.take()

    async def all_refused(by: RedisStore) -> None:
        again = {name: replace(bench, store=by) for name, bench in benches.items()}
        said = await asyncio.gather(
            *(refused(again[name], step, grants[name]) for name, step in STEPS.items())
        )
        expected = "not durable yet: 0 of 1 replicas and the disk have"
        assert [text.startswith(expected) for text in said] == [True] * len(STEPS), said

    await other.registry()
    async with replicas_hang(watched):
        await all_refused(store)
        await all_refused(other)
    for name, step in STEPS.items():
        await step(benches[name], grants[name])
    await store.close()
    await other.close()


async def test_what_nothing_relies_on_waits_for_nobody(watched: SentinelSet) -> None:
    """A claim that a failover loses is refused when it wants to send; progress is only shown."""
    async with strict_bench(watched.url) as bench:
        await bench.enqueue()
        async with replicas_hang(watched):
            (grant,) = (await bench.claim()).grants
            await bench.store.progress(
                bench.queue, grant.id, grant.fence, fraction=0.5, message="half"
            )
            assert await bench.states() == {"leased": 1}


async def test_no_append_only_file() -> None:
    """The sentence says what to set, at the first step and at the next start."""
    async with ValkeyServer(options={"appendonly": "no"}) as server:
        with pytest.raises(StoreMisconfigured, match="appendonly yes"):
            async with strict_bench(server.url):
                pass
        store = RedisStore(server.url)
        await StoreBench(store).configure()
        await store._redis.client.config_set("appendonly", "yes")
        async with strict_bench(server.url):
            pass
        await store._redis.client.config_set("appendonly", "no")
        await store.close()
        with pytest.raises(StoreMisconfigured, match="append-only file is off"):
            await connect(server.url)


async def test_a_disk_that_is_synced_every_second_is_a_warning() -> None:
    async with ValkeyServer() as server, strict_bench(server.url) as bench:
        (warning,) = await bench.store.check()
        assert "appendfsync always" in warning


async def test_without_replicas_the_disk_counts() -> None:
    """One server: its own disk. More is asked for with min_replicas."""
    async with ValkeyServer(options=ALWAYS) as server:
        async with strict_bench(server.url) as bench:
            await bench.enqueue()
            await bench.run_one()
        store = RedisStore(f"{server.url}?min_replicas=1")
        bench = StoreBench(store, config=bench.config)
        bench.code = (await store.registry())[bench.queue].code
        with pytest.raises(StoreUnavailable, match="0 of 1 replicas and the disk have"):
            await bench.enqueue()
        await store.close()


async def test_an_acknowledged_job_survives_kill_9(watched: SentinelSet) -> None:
    """Q39, Q40: whatever was acknowledged is on the replica that is promoted, though the primary took
    more for a while."""
    async with strict_bench(watched.url) as bench:
        acknowledged: list[str] = []

        async def produce() -> None:
            while True:
                try:
                    acknowledged.extend(await bench.enqueue())
                except StoreUnavailable:
                    await asyncio.sleep(0.1)

        producing = asyncio.create_task(produce())
        await asyncio.sleep(0.5)
        async with replicas_hang(watched):
            primary = await watched.primary()
            await ask(primary, "CLIENT", "KILL", "TYPE", "replica")
            await asyncio.sleep(0.5)  # nothing of this half second reaches a replica
            await primary.kill()
        await watched.promoted(primary)
        await asyncio.sleep(0.5)
        await end(producing)
        assert acknowledged
        for job in acknowledged:
            assert await bench.state(job) == "ready"
