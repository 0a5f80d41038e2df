"""Worker processes against the simulated provider: what is handed out, killed, cancelled, renewed,
recycled, and what an idle one costs."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.workerprocess import WorkerProcess, eventually
from support.workerworld import World, running_world

IDLE_SECONDS = 15.0
LEAST_STARTS = 3


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with running_world(tmp_path) as world:
        yield world


async def test_signal_as_jobs_finish(world: World) -> None:
    """Q2: SIGTERM while eight calls end one by one: each settled before exit, once."""
    async with world.worker(slots=8) as worker:
        ids = await world.enqueue(*(1.0 + 0.05 * n for n in range(8)))
        await world.until("sent", 8)
        await asyncio.sleep(0.9)
        worker.terminate()
        assert await worker.exit_code() == 0
    assert await world.runs(*ids) == [("succeeded", 1)] * 8
    assert await world.ledger_jobs() == sorted(ids)
    assert (await world.fake.stats())["billed_twice"] == 0


async def test_signal_as_soon_as_it_is_handled(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Q4: SIGTERM while modules are still being imported is an orderly end, too."""
    # A measured process has coverage's handler for SIGTERM before ours, and dies of it.
    for name in ("COVERAGE_PROCESS_CONFIG", "COVERAGE_PROCESS_START"):
        monkeypatch.delenv(name, raising=False)
    worker = world.worker()
    worker.spawn()
    try:
        async with asyncio.timeout(30):
            while not worker.catches(signal.SIGTERM):
                await asyncio.sleep(0.001)
        worker.terminate()
        assert await worker.exit_code() == 0
    finally:
        worker.kill()


async def test_drain_is_longer_than_the_lease(world: World) -> None:
    """Q5: a call of three leases goes on through the drain; its lease is renewed to the end."""
    async with world.worker(slots=1, uid="pod-a") as draining:
        ids = await world.enqueue(6.0)
        await world.until("sent")
        async with world.worker(slots=1, uid="pod-b"):
            draining.terminate()
            assert await draining.exit_code() == 0
    assert await world.runs(*ids) == [("succeeded", 1)]
    assert (await world.fake.stats())["calls"] == 1


async def test_job_is_longer_than_the_lease(world: World) -> None:
    """Q11: lease 2 s, job 10 s, two workers: one start."""
    async with world.worker(uid="pod-a"), world.worker(uid="pod-b"):
        ids = await world.enqueue(10.0)
        await world.until("succeeded")
    assert await world.runs(*ids) == [("succeeded", 1)]
    assert await world.grants() == 1
    assert (await world.fake.stats())["calls"] == 1


async def test_stream_goes_on_through_the_drain(world: World) -> None:
    """Q3: SIGTERM in the middle of a stream: the whole answer is kept."""
    async with world.worker(slots=1) as worker:
        (job,) = await world.enqueue(3.0, directive="output=40", stream=True)
        await world.until("sent")
        await asyncio.sleep(1.0)
        worker.terminate()
        assert await worker.exit_code() == 0
    view = await world.bench.store.job(job)
    assert (str(view.state), len(view.attempts)) == ("succeeded", 1)
    answer = json.loads(view.result or b"{}")
    assert answer["choices"][0]["message"]["content"].split() == ["word"] * 40
    assert [entry["output_tokens"] for entry in await world.ledger()] == [40]


async def test_kill_under_load(world: World) -> None:
    """Q6: kill -9 of one of two workers: each job in one place, and all of them end."""
    first = world.worker(uid="pod-a", slots=4)
    async with first, world.worker(uid="pod-b", slots=4):
        ids = await world.enqueue(*[0.5] * 24)
        await world.at_least("succeeded", 8)
        slots = await world.slots_of("pod-a")
        first.kill()
        states = await world.bench.states()
        assert sum(states.values()) == 24, states
        await world.until("succeeded", 24, seconds=40)
    assert await world.bench.states() == {"succeeded": 24}
    billed = await world.fake.billed()
    assert set(billed) == set(ids)
    twice = [job for job, bills in billed.items() if bills > 1]
    assert len(twice) <= slots
    for job in twice:
        assert (await world.bench.store.job(job)).possible_duplicate


async def test_claims_only_for_free_slots(world: World) -> None:
    """Q13: three slots, twenty jobs: never more than three in hand."""
    most = 0
    async with world.worker(slots=3):
        await world.enqueue(*[0.3] * 20)
        while (states := await world.bench.states()).get("succeeded", 0) < 20:
            most = max(most, states.get("leased", 0) + states.get("sent", 0))
            assert most <= 3, states
            await asyncio.sleep(0.01)
    assert most == 3
    assert (await world.fake.stats())["max_in_flight"] == 3
    assert await world.grants() == 20


async def test_cancel_during_a_call(world: World) -> None:
    """Q48: the call is closed within a heartbeat, booked, and the pump lives."""
    async with world.worker(slots=1):
        (job,) = await world.enqueue(30.0)
        await world.until("sent")
        await world.bench.store.cancel(job)
        await world.until("cancelled", seconds=4)
        (after,) = await world.enqueue(0.0)
        await world.until("succeeded")
    assert await world.runs(job, after) == [("cancelled", 1), ("succeeded", 1)]
    classes = {entry["job"]: entry["class"] for entry in await world.ledger()}
    assert classes == {job: "CANCELLED", after: "SUCCESS"}


async def test_cancel_at_any_moment(world: World) -> None:
    """Q48: cancels that fall between claim, sent decision, call and settle lose nothing."""
    async with world.worker(slots=4):
        ids = await world.enqueue(*[0.05] * 40)
        for n, job in enumerate(ids[::2]):
            await world.bench.store.cancel(job)
            await asyncio.sleep(0.007 * (n % 5))
        await world.enqueue(0.0)

        async def over() -> bool:
            states = await world.bench.states()
            return states.get("succeeded", 0) + states.get("cancelled", 0) == 41

        await eventually(over, what="an end of all jobs")
    runs = await world.runs(*ids[1::2])
    assert runs == [("succeeded", 1)] * 20


async def test_recycling_keeps_the_process(world: World) -> None:
    """Three new images in a row, one process: same pid, a new name each, no job twice."""
    async with world.worker(slots=1, max_jobs=2) as worker:
        pid, ids = worker.pid, await world.enqueue(*[0.1] * 7)
        await world.until("succeeded", 7, seconds=60)
        assert worker.process.poll() is None
        starts = worker.log("started")
        assert {start["pid"] for start in starts} == {pid}
        assert len({start["name"] for start in starts}) == len(starts) > LEAST_STARTS
        await worker.ready()
        worker.terminate()
        assert await worker.exit_code() == 0
    assert await world.runs(*ids) == [("succeeded", 1)] * 7
    assert (await world.fake.stats())["billed_twice"] == 0


async def test_settle_outlives_a_restart_of_the_store(world: World) -> None:
    """Q37, Q40: the store is away as the call ends: settled once it is back, and claims resume."""
    async with world.worker(slots=1):
        (job,) = await world.enqueue(1.0)
        await world.until("sent")
        await world.server.stop()
        await asyncio.sleep(2.0)
        await world.server.start()
        await world.until("succeeded", seconds=5)
        (after,) = await world.enqueue(0.0)
        await world.until("succeeded", 2, seconds=5)
    assert await world.runs(job, after) == [("succeeded", 1)] * 2
    assert await world.ledger_jobs() == sorted([job, after])


async def test_key_and_payload_stay_out_of_the_log(world: World, tmp_path: Path) -> None:
    key = "sk-" + "q7" * 20
    (tmp_path / "key").write_text(key)
    async with world.worker(slots=1, api_key_file=tmp_path / "key", log_level="debug") as worker:
        await world.enqueue(0.0, directive="fault=401")
        await world.until("ready", 0)
        await eventually(world.ledger, what="a ledger entry")
        worker.terminate()
        assert await worker.exit_code() == 0
    assert key not in worker.text()
    assert "sim:latency" not in worker.text()


async def test_idle_worker_costs_next_to_nothing(world: World) -> None:
    """An idle worker uses less than 1 % of a core."""
    async with world.worker() as worker:
        await asyncio.sleep(2)
        used = await _used_while_idle(worker)
    assert used / IDLE_SECONDS < 0.01
    print(f"idle: {100 * used / IDLE_SECONDS:.2f} % CPU")


async def _used_while_idle(worker: WorkerProcess) -> float:
    before = worker.cpu_seconds()
    await asyncio.sleep(IDLE_SECONDS)
    print(f"resident: {worker.resident_mib():.0f} MiB")
    return worker.cpu_seconds() - before
