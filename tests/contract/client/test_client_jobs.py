"""Enqueueing by the client, and what becomes of a job as its handle tells it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from llmqueue.client import Client, HandlerCall, JobSpec
from llmqueue.errors import (
    InvalidJob,
    JobCancelled,
    JobExpired,
    JobFailed,
    JobInReview,
    PartlyEnqueued,
    QueueFull,
    UnknownJob,
    UnknownQueue,
    UsageError,
)
from llmqueue.states import JobState, OutcomeClass
from support.clientbench import ClientBench, payload
from support.storebench import after_lease

AT_ONCE = 1.0


async def test_a_job_s_options_reach_the_store(clients: ClientBench) -> None:
    handle = await clients.client.enqueue(
        "q",
        payload(),
        priority=9,
        tenant="t",
        feature="f",
        deadline_seconds=60,
        timeout_seconds=30,
        max_attempts=2,
        backoff_seconds=(1, 2.5),
        correlation_id="trace-1",
        estimated_input_tokens=77,
    )
    assert (handle.state, handle.duplicate) == (JobState.READY, False)
    view = await handle.view()
    assert (view.priority, view.tenant, view.feature) == (9, "t", "f")
    assert view.correlation_id == "trace-1"
    assert view.deadline_at is not None
    grant = await clients.worker.take()
    assert (grant.timeout_seconds, grant.correlation_id, grant.input_tokens) == (30, "trace-1", 77)
    fields = await clients.worker.redis.hmget(clients.worker.key("j", handle.id), "M", "B")
    assert fields == [b"2", b"[1000,2500]"]


async def test_a_job_may_wait_for_a_moment(clients: ClientBench) -> None:
    soon = datetime.now(UTC) + timedelta(seconds=100)
    handle = await clients.client.enqueue("q", payload(), not_before=soon)
    assert handle.state is JobState.DELAYED
    due = (await handle.view()).not_before
    assert due == pytest.approx(soon.timestamp(), abs=5)
    past = await clients.client.enqueue("q", payload(), not_before=soon - timedelta(days=9))
    assert past.state is JobState.READY


async def test_a_handler_s_call_is_stored_with_its_name(clients: ClientBench) -> None:
    with pytest.raises(InvalidJob, match=r"no handlers: name their module in spec\.worker\.handl"):
        await clients.client.enqueue("q", HandlerCall("summarise", {"text": "é"}))
    await clients.worker.configure(queue={"handlers": True})
    handle = await clients.client.enqueue("q", HandlerCall("summarise", {"text": "é"}))
    view = await handle.view()
    assert (view.handler, view.payload) == ("summarise", '{"text":"é"}'.encode())
    fields = await clients.worker.redis.hmget(
        clients.worker.key("j", handle.id), "H", "i", "o", "u"
    )
    assert fields == [b"summarise", b"1000", b"4096", None]


async def test_one_key_is_one_job(clients: ClientBench) -> None:
    """Q34"""
    enqueue = clients.client.enqueue
    first = await enqueue("q", payload(), idempotency_key="k")
    again = await enqueue("q", JobSpec(payload=payload(), idempotency_key="k"))
    assert (again.id, first.duplicate, again.duplicate) == (first.id, False, True)
    with pytest.raises(InvalidJob, match="belongs to other bytes"):
        await enqueue("q", payload("other"), idempotency_key="k")
    await clients.worker.configure(queue={"handlers": True})
    called = await enqueue("q", HandlerCall("a"), idempotency_key="h")
    with pytest.raises(InvalidJob, match="belongs to other bytes"):
        await enqueue("q", HandlerCall("b"), idempotency_key="h")
    assert called.id != first.id


async def test_an_unknown_queue_is_named_with_those_that_exist(clients: ClientBench) -> None:
    with pytest.raises(UnknownQueue, match="known queues: default/q"):
        await clients.client.enqueue("nope", payload())


async def test_many_are_validated_before_the_first_is_stored(clients: ClientBench) -> None:
    jobs = [payload() for _ in range(40)] + [{"model": "m"}]
    with pytest.raises(InvalidJob, match="messages"):
        await clients.client.enqueue_many("q", jobs)
    assert await clients.worker.states() == {}
    handles = await clients.client.enqueue_many("q", jobs[:-1])
    assert len({handle.id for handle in handles}) == 40


async def test_a_full_queue_says_how_many_were_stored_and_which(clients: ClientBench) -> None:
    await clients.worker.configure(queue={"max_jobs": 70})
    with pytest.raises(PartlyEnqueued, match="64 of 100 jobs were stored") as failed:
        await clients.client.enqueue_many("q", [payload() for _ in range(100)])
    assert isinstance(failed.value.__cause__, QueueFull)
    assert (len(failed.value.stored), failed.value.unknown, failed.value.total) == (64, (), 100)
    assert await clients.client.handle(failed.value.stored[-1]).view()
    with pytest.raises(QueueFull):  # nothing was stored: it is that and no more
        await clients.client.enqueue_many("q", [payload() for _ in range(7)])


# ---------------------------------------------------------------- results


async def test_a_result_is_waited_for(clients: ClientBench) -> None:
    handle = await clients.client.enqueue("q", payload())
    result = await clients.waiting(handle.result(10))
    await asyncio.sleep(0.05)
    assert not result.done()
    await clients.succeed(b'{"answer":9223372036854775807}')
    async with asyncio.timeout(AT_ONCE):
        assert await result == {"answer": 2**63 - 1}
    assert await handle.result() == {"answer": 2**63 - 1}


@pytest.mark.parametrize(
    ("end", "error", "words"),
    [
        pytest.param("dead", JobFailed, "is dead: no such model", id="dead"),
        pytest.param("cancel", JobCancelled, "is cancelled", id="cancelled"),
        pytest.param("deadline", JobExpired, "is expired: deadline passed", id="expired"),
    ],
)
async def test_no_result_is_an_error_that_says_why(
    clients: ClientBench, end: str, error: type[JobFailed], words: str
) -> None:
    handle = await clients.client.enqueue("q", payload(), deadline_seconds=10)
    result = await clients.waiting(handle.result(10))
    if end == "dead":
        await clients.fail(status=400, message="no such model")
    elif end == "cancel":
        assert await handle.cancel() is JobState.CANCELLED
    else:
        await clients.worker.advance(11)
        await clients.worker.store.snapshot(clients.queue, horizon_seconds=0)
    with pytest.raises(error, match=words) as failed:
        await result
    assert failed.value.view.id == handle.id
    if end == "dead":
        assert (failed.value.outcome_class, failed.value.severity) == ("PERMANENT", "ERROR")
        assert [attempt["class"] for attempt in failed.value.attempts] == ["PERMANENT"]


async def test_a_review_is_waited_through_or_told(clients: ClientBench) -> None:
    """Q49: a person decides, or the lost worker's answer comes after all."""
    handle = await clients.client.enqueue("q", payload(tools=[{"type": "function"}]))
    await clients.worker.redis.hset(clients.worker.key("j", handle.id), "u", 10**12)
    patient = await clients.waiting(handle.result(20))
    grant = await clients.worker.take()
    await clients.worker.send(grant)
    await after_lease(clients.worker)
    with pytest.raises(JobInReview):
        await handle.result(10, on_review="raise")
    assert not patient.done()
    await clients.worker.settle(grant)
    assert await patient == {"ok": True}


async def test_waiting_has_an_end(clients: ClientBench) -> None:
    handle = await clients.client.enqueue("q", payload())
    with pytest.raises(TimeoutError):
        await handle.result(timeout_seconds=0.1)
    assert (await handle.view()).state is JobState.READY


async def test_an_unknown_job(clients: ClientBench) -> None:
    for job_id in ("none", clients.worker.code + "0" * 18):
        handle = clients.client.handle(job_id)
        for call in (handle.view(), handle.cancel(), handle.result(5)):
            with pytest.raises(UnknownJob):
                await call


async def test_a_closed_client_leaves_nothing_behind(clients: ClientBench) -> None:
    before = asyncio.all_tasks()
    async with Client.connect(clients.url) as client:
        handle = await client.enqueue("q", payload())
        with pytest.raises(TimeoutError):
            await handle.result(0.05)
    await asyncio.sleep(0)
    assert asyncio.all_tasks() <= before


async def test_closing_ends_the_waiting(clients: ClientBench) -> None:
    handle = await clients.client.enqueue("q", payload())
    result = await clients.waiting(handle.result())
    await clients.client.close()
    with pytest.raises(UsageError, match="the client was closed"):
        await result


@pytest.mark.parametrize("seconds", [-1, 61])
async def test_patience_has_bounds(clients: ClientBench, seconds: float) -> None:
    """Longer than a job is kept for sure, a repeat could run it again."""
    with pytest.raises(UsageError, match="retry_seconds"):
        Client.connect(clients.url, retry_seconds=seconds)


async def test_a_final_outcome_class_of_a_retry_is_the_last_one(clients: ClientBench) -> None:
    handle = await clients.client.enqueue("q", payload(), max_attempts=1)
    await clients.fail(OutcomeClass.TRANSIENT, message="upstream")
    with pytest.raises(JobFailed) as failed:
        await handle.result(5)
    assert failed.value.outcome_class == "TRANSIENT"
