"""Primaries are killed under load, with real workers and a provider that bills."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from redis.crc import key_slot

from llmqueue.config import BreakerPolicy
from llmqueue.endings import end
from llmqueue.errors import StoreUnavailable, UnknownJob
from support.topologies import ClusterOfThree, SentinelSet
from support.workerprocess import WorkerProcess
from support.workerworld import World, running_world

ALWAYS = {"appendfsync": "always"}
UNDECIDED = {"ready", "delayed", "leased", "sent"}


@asynccontextmanager
async def loaded_world(
    folder: Path, server: SentinelSet | ClusterOfThree, **queue: str
) -> AsyncIterator[tuple[World, list[WorkerProcess]]]:
    """A world with two workers at work; a breaker that opens would only make it slower."""
    async with running_world(folder, server=server, **queue) as world, AsyncExitStack() as stack:
        budget = {"lease_seconds": 10, "breaker": BreakerPolicy(failures=10_000)}
        await world.bench.configure(budget=budget)
        workers = [
            await stack.enter_async_context(world.worker(uid=uid, slots=6, lease_seconds=10))
            for uid in ("pod-a", "pod-b")
        ]
        yield world, workers


class Producer:
    """Enqueues until it is stopped; `acknowledged` are the ids that the store has confirmed."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.acknowledged: list[str] = []
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(StoreUnavailable):
                self.acknowledged += await self._world.enqueue(random.uniform(0.2, 1.0))
            await asyncio.sleep(0.1)

    async def stop(self) -> list[str]:
        await end(self._task)
        return self.acknowledged


async def nothing_waits(world: World, *, seconds: float) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while True:
        with contextlib.suppress(StoreUnavailable):
            states = await world.bench.states()
            if not UNDECIDED & set(states):
                return
        assert loop.time() < deadline, f"still {states}"
        await asyncio.sleep(0.3)


async def ended(world: World, ids: list[str]) -> Counter[str]:
    """How many jobs are in each state; `lost` for those that the store does not know."""
    found: Counter[str] = Counter()
    for job in ids:
        try:
            found[await world.bench.state(job)] += 1
        except UnknownJob:
            found["lost"] += 1
    return found


async def the_ledger_is_the_bill(world: World, ids: list[str]) -> None:
    """One entry and one paid call for each job: none lost, none twice."""
    stats = await world.fake.stats()
    assert stats["billed_twice"] == 0, stats["billed_twice_jobs"]
    assert set(ids) <= set(await world.ledger_jobs())
    assert len(await world.ledger_jobs()) == stats["billed"]["calls"]


async def kill_primaries(folder: Path, kills: int) -> None:
    sentinels = SentinelSet(options=ALWAYS)
    async with loaded_world(folder, sentinels, durability="Strict") as (world, workers):
        producer, dead = Producer(world), None
        for _ in range(kills):
            await asyncio.sleep(random.uniform(1.0, 3.0))
            if dead is not None:
                await sentinels.bring_back(dead)
            dead = await sentinels.kill_primary()
        await asyncio.sleep(2)
        ids = await producer.stop()
        await nothing_waits(world, seconds=60)
        assert await ended(world, ids) == {"succeeded": len(ids)}
        await the_ledger_is_the_bill(world, ids)
        print(f"{kills} primaries killed: {len(ids)} jobs acknowledged, all of them succeeded")
        for worker in workers:
            worker.terminate()
            assert await worker.exit_code() == 0


@pytest.mark.timeout(180)
async def test_primaries_are_killed_under_strict(tmp_path: Path) -> None:
    """Q39, Q40: no acknowledged job is lost, none is paid twice, the ledger is the bill."""
    await kill_primaries(tmp_path, 2)


@pytest.mark.soak
@pytest.mark.timeout(1800)
async def test_twenty_primaries_are_killed_under_strict(tmp_path: Path) -> None:
    await kill_primaries(tmp_path, 20)


@pytest.mark.timeout(180)
async def test_a_primary_of_a_cluster_is_killed(tmp_path: Path) -> None:
    """Q18: workers find the promoted replica; min_replicas makes Strict hold in a cluster."""
    cluster = ClusterOfThree(replicas=True, options=ALWAYS, query="?min_replicas=1")
    async with loaded_world(tmp_path, cluster, durability="Strict") as (world, _):
        producer = Producer(world)
        await asyncio.sleep(2)
        dead = await cluster.kill_owner(key_slot(world.bench.key("cfg").encode()))
        await dead.start()  # the one replica that is left to acknowledge
        await asyncio.sleep(3)
        ids = await producer.stop()
        await nothing_waits(world, seconds=60)
        assert await ended(world, ids) == {"succeeded": len(ids)}
        await the_ledger_is_the_bill(world, ids)


@pytest.mark.soak
@pytest.mark.timeout(1800)
async def test_what_standard_loses(tmp_path: Path) -> None:
    """Measured, not promised: what a promoted replica had not heard of, and what a primary took that
    did not know yet that it is none."""
    sentinels = SentinelSet()
    async with loaded_world(tmp_path, sentinels) as (world, _):
        producer, dead = Producer(world), None
        for _ in range(20):
            await asyncio.sleep(random.uniform(1.0, 3.0))
            if dead is not None:
                await sentinels.bring_back(dead)
            dead = await sentinels.kill_primary()
        ids = await producer.stop()
        await nothing_waits(world, seconds=120)
        found, stats = await ended(world, ids), await world.fake.stats()
        assert set(found) <= {"succeeded", "review", "lost"}
        print(f"20 primaries killed: {dict(found)}; {stats['billed_twice']} jobs paid twice")
