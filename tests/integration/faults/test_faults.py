"""Workers are killed, the store restarts and hangs, all under load: nothing lost, nothing paid twice
in silence."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest

from llmqueue.config import BreakerPolicy
from llmqueue.errors import StoreUnavailable
from llmqueue.states import JobState
from support.storebench import QUEUE
from support.workerprocess import WorkerProcess
from support.workerworld import World, running_world

UNSENT_AGAIN_SECONDS = 15.0


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with running_world(tmp_path) as world:
        await world.bench.configure(
            budget={"lease_seconds": 10, "breaker": BreakerPolicy(failures=10_000)}
        )
        yield world


async def settle_down(world: World, ids: list[str], *, seconds: float) -> Counter[str]:
    """Wait until nothing waits or runs; returns how many jobs ended in each state."""
    deadline = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < deadline:
        with contextlib.suppress(StoreUnavailable):  # our own connection met the outage, too
            states = await world.bench.states()
            if not {"ready", "delayed", "leased", "sent"} & set(states):
                break
        await asyncio.sleep(0.3)
    found = Counter([str((await world.bench.store.job(each)).state) for each in ids])
    assert sum(found.values()) == len(ids)
    assert dict(found) == await world.bench.states()
    return found


async def bills_are_told(world: World) -> None:
    """Whatever was billed twice has a job that says so; each fence was settled once."""
    stats = await world.fake.stats()
    for job_id in stats["billed_twice_jobs"]:
        job = await world.bench.store.job(job_id.partition("/")[0])
        assert job.possible_duplicate, f"{job_id} was paid twice in silence"
        assert len(job.attempts) >= 2
    rows = await world.bench.redis.xrange(world.bench.key("ledger"))
    fences = Counter(row[b"f"] for _, row in rows if row[b"k"] != b"correction")
    assert set(fences.values()) <= {1}


async def only_lost_repeats_wait(world: World, found: Counter[str]) -> None:
    """A job that lost its worker twice in the middle of a call is a person's to decide; all others
    have succeeded."""
    assert set(found) <= {"succeeded", "review"}
    waiting = await world.bench.store.jobs(QUEUE, JobState.REVIEW, limit=found.total())
    assert len(waiting) == found["review"]
    for job in waiting:
        assert [attempt["class"] for attempt in job.attempts] == ["UNKNOWN", "UNKNOWN"]
    print(f"{found['succeeded']} succeeded, {found['review']} lost their worker twice")


async def kill_workers(world: World, kills: int) -> None:
    ids = await world.enqueue(*(random.uniform(0.2, 1.0) for _ in range(30 * kills)))
    workers: list[WorkerProcess] = []
    for n in range(2):
        worker = world.worker(uid=f"pod-{n}", slots=6, lease_seconds=10)
        worker.spawn()
        workers.append(worker)
    for n in range(kills):
        await asyncio.sleep(random.uniform(1.5, 3.0))
        workers.pop(0).kill()
        fresh = world.worker(uid=f"pod-{n + 2}", slots=6, lease_seconds=10)
        fresh.spawn()
        workers.append(fresh)
    found = await settle_down(world, ids, seconds=60 + 5 * kills)
    for worker in workers:
        worker.terminate()
        assert await worker.exit_code() == 0
    await only_lost_repeats_wait(world, found)
    await bills_are_told(world)


@pytest.mark.timeout(180)
async def test_workers_are_killed(world: World) -> None:
    """P4, P26, Q6, S9: five times kill -9 under load: every job in one place, all of them end."""
    await kill_workers(world, 5)


@pytest.mark.soak
@pytest.mark.timeout(900)
async def test_workers_are_killed_fifty_times(world: World) -> None:
    await kill_workers(world, 50)


@pytest.mark.timeout(60)
async def test_unsent_jobs_of_a_killed_worker_run_again(world: World) -> None:
    """P4, P26: what was claimed and not sent runs elsewhere within 15 s, no attempt used."""
    ids = await world.bench.enqueue(4, payload=b"{}")
    grant = await world.bench.take(worker="dead:1")
    async with world.worker(uid="pod-b", slots=2, lease_seconds=10):
        loop = asyncio.get_running_loop()
        start = loop.time()
        while (await world.bench.store.job(grant.id)).attempts == []:
            assert loop.time() < start + UNSENT_AGAIN_SECONDS
            await asyncio.sleep(0.2)
    assert len(ids) == 4


async def all_succeed_through(
    world: World,
    trouble: Callable[[], Awaitable[object]],
    *,
    times: int,
    every: tuple[float, float],
    jobs: int,
    seconds: float,
) -> None:
    """Two workers under load while `trouble` comes so many times, `every` so many seconds."""
    ids = await world.enqueue(*(random.uniform(0.2, 1.0) for _ in range(jobs)))
    async with (
        world.worker(uid="pod-a", slots=6, lease_seconds=10) as one,
        world.worker(uid="pod-b", slots=6, lease_seconds=10) as two,
    ):
        for _ in range(times):
            await asyncio.sleep(random.uniform(*every))
            await trouble()
        found = await settle_down(world, ids, seconds=seconds)
        for worker in (one, two):
            worker.terminate()
            assert await worker.exit_code() == 0
    assert found == {"succeeded": len(ids)}, "trouble at the store sent a job elsewhere"
    assert (await world.fake.stats())["billed_twice"] == 0


async def restart_the_store(world: World, restarts: int) -> None:
    await all_succeed_through(
        world,
        world.server.restart,
        times=restarts,
        every=(1.0, 2.0),
        jobs=40 * restarts,
        seconds=60 + 5 * restarts,
    )


@pytest.mark.timeout(150)
async def test_the_store_restarts(world: World) -> None:
    """Q37: three restarts under load: all succeed, nothing goes to review, nothing is paid twice."""
    await restart_the_store(world, 3)


@pytest.mark.soak
@pytest.mark.timeout(600)
async def test_the_store_restarts_twenty_times(world: World) -> None:
    await restart_the_store(world, 20)


async def pause_the_store(world: World, seconds: float) -> None:
    ids = await world.enqueue(*(random.uniform(0.5, 2.0) for _ in range(60)))
    async with world.worker(slots=8, lease_seconds=10) as worker:
        await asyncio.sleep(2)
        await world.server.pause(seconds)
        found = await settle_down(world, ids, seconds=60)
        worker.terminate()
        assert await worker.exit_code() == 0
    assert found == {"succeeded": len(ids)}
    assert (await world.fake.stats())["billed_twice"] == 0


@pytest.mark.timeout(150)
async def test_the_store_hangs(world: World) -> None:
    """Q37: 15 s without an answer: workers wait, finished calls are settled after it."""
    await pause_the_store(world, 15)


@pytest.mark.soak
@pytest.mark.timeout(300)
async def test_the_store_hangs_for_a_minute(world: World) -> None:
    await pause_the_store(world, 60)


async def cut_sockets(world: World, cuts: int) -> None:
    await all_succeed_through(
        world,
        partial(world.bench.redis.client_kill_filter, _type="normal", skipme=True),
        times=cuts,
        every=(0.2, 1.5),
        jobs=20 * cuts,
        seconds=60 + 3 * cuts,
    )


@pytest.mark.timeout(150)
async def test_connections_to_the_store_are_cut(world: World) -> None:
    """Q37: all connections at once, in the middle of whatever they carry: answers are lost, jobs
    are not."""
    await cut_sockets(world, 10)


@pytest.mark.soak
@pytest.mark.timeout(600)
async def test_connections_to_the_store_are_cut_a_hundred_times(world: World) -> None:
    await cut_sockets(world, 100)
