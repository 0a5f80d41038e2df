"""Enqueueing while the store is away, or its answer is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from llmqueue.client import Client
from llmqueue.config import Retention
from llmqueue.errors import PartlyEnqueued, StoreUnavailable
from llmqueue.store import RedisStore
from support.clientbench import payload
from support.lossyproxy import LossyProxy
from support.storebench import StoreBench
from support.valkey import ValkeyServer, free_port


@pytest.fixture
async def server() -> AsyncIterator[ValkeyServer]:
    async with ValkeyServer() as server:
        yield server


@pytest.fixture
async def worker(server: ValkeyServer) -> AsyncIterator[StoreBench]:
    bench = StoreBench(RedisStore(server.url))
    await bench.configure()
    yield bench
    await bench.store.close()


async def test_a_lost_answer_stores_no_second_job(server: ValkeyServer, worker: StoreBench) -> None:
    """Q1: the job was stored; its producer hears of it by its second try."""
    async with LossyProxy(server.url) as proxy, Client.connect(proxy.url) as client:
        proxy.lose(b"_enqueue")
        handle = await client.enqueue("q", payload())
        assert proxy.lost == 1
        assert handle.duplicate is False
        assert await worker.states() == {"ready": 1}
        assert (await handle.view()).id == handle.id


async def test_a_job_that_is_done_before_its_answer_is_not_run_again(
    server: ValkeyServer, worker: StoreBench
) -> None:
    """Its retention is a second, and over before the second try."""
    await worker.configure(queue={"retention": Retention(1, 1)})
    async with LossyProxy(server.url) as proxy, Client.connect(proxy.url) as client:
        proxy.lose(b"_enqueue", times=4)
        enqueued = asyncio.create_task(client.enqueue("q", payload()))
        while not proxy.lost:
            await asyncio.sleep(0.005)
        await worker.run_one()
        await worker.advance(5)
        await worker.store.snapshot(worker.queue, horizon_seconds=0)
        handle = await enqueued
        assert proxy.lost >= 2, "the test came too late to see a repeat"
        assert str(handle.state) == "succeeded"
        assert await worker.states() == {"succeeded": 1}
        assert await handle.result(5) == {"ok": True}


async def test_a_lost_answer_of_one_chunk_among_many(
    server: ValkeyServer, worker: StoreBench
) -> None:
    async with LossyProxy(server.url) as proxy, Client.connect(proxy.url) as client:
        proxy.lose(b"_enqueue")
        batch = await client.batch("q", [payload() for _ in range(100)])
        assert proxy.lost == 1
        view = await batch.progress()
        assert (view.total, view.pending, view.sealed) == (100, 100, True)
        assert await worker.states() == {"ready": 100}


async def test_a_restart_in_the_middle_of_many(server: ValkeyServer, worker: StoreBench) -> None:
    """Q37: kill -9 between chunks; each job is there once."""
    async with Client.connect(server.url) as client:
        stored = 0

        def on_stored(handles: object) -> None:
            nonlocal stored
            stored += 1

        jobs = [payload() for _ in range(6000)]
        many = asyncio.create_task(client.enqueue_many("q", jobs, on_stored=on_stored))
        while stored < 20:
            await asyncio.sleep(0.005)
        await server.kill()
        assert not many.done(), "the server was killed too late"
        await asyncio.sleep(0.5)
        await server.start()
        handles = await many
        await worker.reconnect()
        found = [
            one
            for start in range(0, 6000, 500)
            for one in await worker.store.standings(
                worker.queue, [h.id for h in handles[start : start + 500]]
            )
        ]
        lost = sum(one is None for one in found)
        assert len({h.id for h in handles}) == 6000
        # `appendfsync everysec`: the kernel has what the process wrote, so kill -9 loses nothing.
        assert lost == 0
        assert await worker.states() == {"ready": 6000}


async def test_a_server_that_hangs(server: ValkeyServer, worker: StoreBench) -> None:
    """Q37: paused longer than a command may take, then everything is stored, once."""
    async with Client.connect(server.url, retry_seconds=30) as client:
        await client.enqueue("q", payload())
        pause = asyncio.create_task(server.pause(6))
        await asyncio.sleep(0.1)
        handles = await client.enqueue_many("q", [payload() for _ in range(100)])
        await pause
        assert len(handles) == 100
        assert await worker.states() == {"ready": 101}


async def test_an_outage_beyond_patience_says_what_is_known(
    server: ValkeyServer, worker: StoreBench
) -> None:
    async with Client.connect(server.url, retry_seconds=0.3) as client:
        killed: list[asyncio.Task[None]] = []

        def on_stored(handles: object) -> None:
            if not killed:
                killed.append(asyncio.ensure_future(server.kill()))

        with pytest.raises(PartlyEnqueued, match="it is not known") as failed:
            await client.enqueue_many("q", [payload() for _ in range(5000)], on_stored=on_stored)
        error = failed.value
        assert isinstance(error.__cause__, StoreUnavailable)
        assert len(error.stored) % 32 == 0
        assert len(error.unknown) in (8, 32)
        await killed[0]
        await server.start()
        await worker.reconnect()
        for job_id in error.stored:
            assert await client.handle(job_id).view()
        assert (await worker.states())["ready"] in range(
            len(error.stored), len(error.stored) + len(error.unknown) + 1
        )


async def test_one_job_beyond_patience_is_plainly_unavailable(server: ValkeyServer) -> None:
    client = Client.connect(f"redis://127.0.0.1:{free_port()}/0", retry_seconds=0.1)
    with pytest.raises(StoreUnavailable):
        await client.enqueue("q", payload())
    with pytest.raises(StoreUnavailable):
        async with client:
            pass


async def test_a_batch_whose_end_is_not_known_is_named(
    server: ValkeyServer, worker: StoreBench
) -> None:
    """All of it is stored, and the answer to its sealing is lost: running it again seals it."""
    async with LossyProxy(server.url) as proxy:
        async with Client.connect(proxy.url, retry_seconds=0) as client:
            proxy.lose(b"_batch_seal")
            with pytest.raises(PartlyEnqueued, match="2 of 2 jobs were stored; batch") as failed:
                await client.batch("q", [payload(), payload("b")])
            assert (len(failed.value.stored), failed.value.unknown) == (2, ())
        async with Client.connect(proxy.url) as client:
            proxy.lose(b"_batch_open")
            batch_id = await client.new_batch_id("q")
            batch = await client.batch("q", [payload()], batch_id=batch_id)
            assert proxy.lost == 2
            assert (await batch.progress()).state == "running"


async def test_a_batch_that_broke_off_is_gone_on_with(
    server: ValkeyServer, worker: StoreBench
) -> None:
    """Its producer dies with some of it stored; run again with its id, it is complete, once."""
    jobs = [payload(str(number)) for number in range(100)]
    async with Client.connect(server.url, retry_seconds=0) as client:
        batch_id = await client.new_batch_id("q", key="nightly")
        await worker.configure(queue={"max_jobs": 70})
        with pytest.raises(PartlyEnqueued, match=f"batch {batch_id} is open"):
            await client.batch("q", jobs, batch_id=batch_id)
        view = await client.batch_handle(batch_id).progress()
        assert (view.state, view.total) == ("open", 64)
        await worker.configure(queue={"max_jobs": 1000})
        batch = await client.batch("q", jobs, batch_id=await client.new_batch_id("q", "nightly"))
        view = await batch.progress()
        assert (view.state, view.total, batch.id) == ("running", 100, batch_id)
        assert await worker.states() == {"ready": 100}
