"""The client without an event loop, from several threads."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from llmqueue.client import SyncClient
from llmqueue.errors import InvalidJob, JobCancelled, UsageError
from llmqueue.states import JobState
from support.clientbench import ClientBench, payload


def _produce(url: str) -> list[str]:
    """What a program without asyncio does, from eight threads at once."""
    with SyncClient.connect(url) as client, ThreadPoolExecutor(8) as threads:
        ids = list(threads.map(lambda n: client.enqueue("q", payload(str(n))).id, range(40)))
        many = client.enqueue_many("q", (payload() for _ in range(40)))
        assert all(handle.state is JobState.READY and not handle.duplicate for handle in many)
        with pytest.raises(InvalidJob, match="messages"):
            client.enqueue("q", {"model": "m"})
        with pytest.raises(TimeoutError):
            client.handle(ids[0]).result(0.05)
        return ids + [handle.id for handle in many]


def _collect(url: str, ids: list[str]) -> list[object]:
    with SyncClient.connect(url) as client, ThreadPoolExecutor(8) as threads:
        return list(threads.map(lambda job_id: client.handle(job_id).result(30), ids))


async def test_threads_enqueue_and_wait(clients: ClientBench) -> None:
    ids = await asyncio.to_thread(_produce, clients.url)
    assert len(set(ids)) == 80
    waiting = asyncio.create_task(asyncio.to_thread(_collect, clients.url, ids))
    for _ in range(80):
        await clients.succeed()
    assert await waiting == [{"ok": True}] * 80
    assert not [t for t in threading.enumerate() if t.name == "llmqueue client"]


def _follow(url: str) -> list[str]:
    with SyncClient.connect(url) as client:
        handle = client.enqueue("q", payload())
        seen = []
        for event in handle.events():
            seen.append(str(event.state))
            if event.state is JobState.READY:
                assert handle.cancel() is JobState.CANCELLED
        with pytest.raises(JobCancelled):
            handle.result()
        assert handle.view().state is JobState.CANCELLED
        assert next(handle.events()).state is JobState.CANCELLED
        return seen


async def test_events_are_iterated(clients: ClientBench) -> None:
    assert await asyncio.to_thread(_follow, clients.url) == ["ready", "cancelled"]


def _batch(url: str) -> tuple[int, int]:
    with SyncClient.connect(url) as client:
        batch = client.batch("q", [payload(), payload()], finally_=payload())
        assert client.batch_handle(batch.id).progress().pending == 2
        assert batch.cancel().cancelled
        view = batch.wait(10)
        states = [one.state for _, one in batch.results()]
        assert states == [JobState.CANCELLED] * 2
        return view.failed, len(list(batch.job_ids()))


async def test_batches(clients: ClientBench) -> None:
    assert await asyncio.to_thread(_batch, clients.url) == (2, 2)
    assert await clients.worker.states() == {"cancelled": 2, "ready": 1}


def _close_while_waiting(url: str) -> None:
    client = SyncClient.connect(url)
    handle = client.enqueue("q", payload())
    with ThreadPoolExecutor(2) as threads:
        waiting = threads.submit(handle.result)
        listed = threads.submit(lambda: list(handle.events()))
        time.sleep(0.3)
        client.close()
        for each in (waiting, listed):
            with pytest.raises(UsageError, match="client was closed"):
                each.result(5)


async def test_closing_ends_what_other_threads_wait_for(clients: ClientBench) -> None:
    await asyncio.to_thread(_close_while_waiting, clients.url)


def _after_the_end(url: str) -> None:
    client = SyncClient.connect(url)
    client.close()
    client.close()
    with pytest.raises(UsageError, match="closed"):
        client.enqueue("q", payload())
    with pytest.raises(UsageError, match="not a Redis URL"):
        SyncClient.connect("nonsense")
    assert not [t for t in threading.enumerate() if t.name == "llmqueue client"]


async def test_a_closed_client_says_so(clients: ClientBench) -> None:
    await asyncio.to_thread(_after_the_end, clients.url)
