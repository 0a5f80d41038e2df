"""Batches as a producer sees them."""

from __future__ import annotations

import asyncio
import json

import pytest

from llmqueue.client import HandlerCall, JobSpec
from llmqueue.errors import InvalidJob, UnknownBatch, UsageError
from llmqueue.states import JobState, OutcomeClass
from support.clientbench import ClientBench, payload
from support.storebench import drain_queue


async def test_a_batch_from_begin_to_end(clients: ClientBench) -> None:
    await clients.worker.configure(queue={"handlers": True})
    batch_id = await clients.client.new_batch_id("q")
    batch = await clients.client.batch(
        "q",
        (payload(str(number)) for number in range(70)),
        name="nightly",
        then=HandlerCall("report", {"batch": batch_id}),
        finally_=JobSpec(payload=payload("tidy"), priority=10),
        batch_id=batch_id,
    )
    waiting = await clients.waiting(batch.wait(30))
    assert (await batch.progress()).pending == 70
    await drain_queue(clients.worker)
    async with asyncio.timeout(2):
        view = await waiting
    assert (view.state, view.name, view.succeeded) == ("succeeded", "nightly", 70)
    results = [(job_id, json.loads(one.result or b"")) async for job_id, one in batch.results()]
    assert [job_id for job_id, _ in results] == [job_id async for job_id in batch.job_ids()]
    assert [result for _, result in results] == [{"ok": True}] * 70
    done = await clients.worker.store.jobs(clients.queue, JobState.SUCCEEDED, limit=100)
    assert len(done) == 72
    (report,) = [job for job in done if job.handler]
    assert (report.handler, report.batch) == ("report", "")


async def test_failures_beyond_what_is_allowed(clients: ClientBench) -> None:
    batch = await clients.client.batch(
        "q", [payload() for _ in range(4)], allowed_failures=1, catch=payload("alarm")
    )
    for _ in range(2):
        await clients.fail(OutcomeClass.PERMANENT)
    assert (await clients.worker.states()) == {"dead": 2, "ready": 3}
    for _ in range(3):
        await clients.succeed()
    assert (await batch.wait(5)).state == "failed"


async def test_jobs_may_end_before_all_are_stored(clients: ClientBench) -> None:
    """The batch ends with its last job, however fast the first ones are."""
    ran = 0

    async def run() -> None:
        nonlocal ran
        while ran < 200:
            ran += len(await drain_queue(clients.worker))
            await asyncio.sleep(0.01)

    running = asyncio.create_task(run())
    batch = await clients.client.batch("q", [payload() for _ in range(200)])
    view = await batch.wait(20)
    await running
    assert (view.total, view.succeeded, view.state) == (200, 200, "succeeded")


async def test_a_batch_is_cancelled_a_part_at_a_time(clients: ClientBench) -> None:
    batch = await clients.client.batch("q", [payload() for _ in range(170)])
    await clients.succeed()
    view = await batch.cancel()
    assert (view.cancelled, view.state, view.succeeded, view.failed) == (True, "failed", 1, 169)
    assert await clients.worker.states() == {"succeeded": 1, "cancelled": 169}


async def test_the_same_place_with_other_content_is_refused(clients: ClientBench) -> None:
    """Who goes on with a batch must bring the same jobs."""
    batch_id = await clients.client.new_batch_id("q", "k")
    batch = await clients.client.new_batch("q", batch_id=batch_id)
    await clients.worker.store.open_batch(batch)
    await clients.client.batch("q", [payload("a")], batch_id=batch_id)
    with pytest.raises(InvalidJob, match="belongs to other bytes"):
        await clients.client.batch("q", [payload("b")], batch_id=batch_id)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"then": {"model": "m"}}, "then: .*messages"),
        ({"catch": JobSpec(payload=payload(), idempotency_key="k")}, "catch: idempotency_key"),
        ({"finally_": HandlerCall("x")}, "finally: handler"),
        ({"allowed_failures": -1}, "allowed_failures: -1"),
        ({"batch_id": "nope"}, r"batch_id: 'nope' .*new_batch_id"),
    ],
)
async def test_a_wrong_batch_stores_nothing(
    clients: ClientBench, options: dict[str, object], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        await clients.client.batch("q", [payload()], **options)
    assert await clients.worker.states() == {}
    assert await clients.worker.store.batches(clients.queue) == []


async def test_an_unknown_batch(clients: ClientBench) -> None:
    handle = clients.client.batch_handle(await clients.client.new_batch_id("q"))
    for call in (handle.progress(), handle.wait(5), handle.cancel()):
        with pytest.raises(UnknownBatch):
            await call
    with pytest.raises(UnknownBatch):
        await clients.client.batch_handle("none").wait(5)
