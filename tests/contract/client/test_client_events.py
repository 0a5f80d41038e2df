"""What handles hear: in time, through gaps and outages, a thousand at once."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from typing import Any

import pytest

from llmqueue.client import Client, JobEvent, JobHandle, watching
from llmqueue.states import JobState, OutcomeClass
from llmqueue.store import RedisStore
from support.clientbench import ClientBench, payload
from support.storebench import StoreBench, drain_queue
from support.valkey import ValkeyServer


async def _all(handle: JobHandle, after: str | None = None) -> list[JobEvent]:
    return [event async for event in handle.events(after)]


def _states(events: list[JobEvent]) -> list[str]:
    return [str(event.state) for event in events]


async def test_events_go_from_the_present_state_to_the_end(clients: ClientBench) -> None:
    handle = await clients.client.enqueue("q", payload())
    events = await clients.waiting(_all(handle))
    await asyncio.sleep(0.05)
    await clients.fail(OutcomeClass.TRANSIENT)
    await clients.worker.advance(20)
    await clients.worker.store.snapshot(clients.queue, horizon_seconds=0)
    await clients.succeed()
    seen = await events
    assert _states(seen) == ["ready", "sent", "delayed", "ready", "sent", "succeeded"]
    assert all(event.job_id == handle.id for event in seen)
    assert all(abs(event.at - time.time()) < 60 for event in seen)
    assert _states(await _all(handle)) == ["succeeded"]


async def test_progress_is_an_event(clients: ClientBench) -> None:
    handle = await clients.client.enqueue("q", payload())
    events = await clients.waiting(_all(handle))
    await asyncio.sleep(0.05)
    grant = await clients.worker.take()
    await clients.worker.send(grant)
    for step in (1, 2):
        await clients.worker.store.progress(
            clients.queue, grant.id, grant.fence, fraction=step / 2, message=f"step {step}"
        )
    await clients.worker.settle(grant)
    told = [(str(e.state), e.progress.message if e.progress else "") for e in await events]
    assert told == [
        ("ready", ""),
        ("sent", ""),
        ("sent", "step 1"),
        ("sent", "step 2"),
        ("succeeded", "step 2"),
    ]


async def test_events_go_on_after_the_one_that_was_seen(clients: ClientBench) -> None:
    """As a browser that reconnects asks for it: what came meanwhile, and nothing twice."""
    handle = await clients.client.enqueue("q", payload())
    events = await clients.waiting(_all(handle))
    await asyncio.sleep(0.05)
    await clients.fail(OutcomeClass.TRANSIENT)
    await clients.worker.advance(20)
    await clients.worker.store.snapshot(clients.queue, horizon_seconds=0)
    await clients.succeed()
    seen = await events
    for number, event in enumerate(seen[1:-1], start=1):
        assert await _all(handle, event.id) == seen[number + 1 :]
    assert _states(await _all(handle, seen[-1].id)) == ["succeeded"]


async def test_what_was_trimmed_is_made_good_by_the_present_state(clients: ClientBench) -> None:
    handle = await clients.client.enqueue("q", payload())
    await clients.worker.store.listen(clients.queue, 30)
    await clients.succeed()
    await clients.worker.redis.delete(clients.worker.key("events"))
    assert _states(await _all(handle, "1-0")) == ["succeeded"]


@pytest.mark.parametrize("loss", ["trimmed", "nobody listened", "stream lost"])
async def test_a_lost_event_delays_and_never_hides(
    clients: ClientBench, loss: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "_LOOK_SECONDS", 0.3)
    handle = await clients.client.enqueue("q", payload())
    result = await clients.waiting(handle.result(20))
    await asyncio.sleep(0.05)
    if loss == "nobody listened":
        await clients.worker.redis.hdel(clients.worker.key("run"), "lsn")
    elif loss == "stream lost":
        await clients.worker.redis.xadd(
            clients.worker.key("events"), {"j": "x", "s": "F"}, id="99999999999999-0"
        )
        await asyncio.sleep(0.1)
        await clients.worker.redis.delete(clients.worker.key("events"))
        await clients.worker.redis.hdel(clients.worker.key("run"), "lsn")
    grant = await clients.worker.take()
    await clients.worker.send(grant)
    if loss == "trimmed":
        pipe = clients.worker.redis.pipeline(transaction=True)
        pipe.hset(clients.worker.key("j", handle.id), "s", "F")
        pipe.xtrim(clients.worker.key("events"), maxlen=0)
        await pipe.execute()
    else:
        await clients.worker.settle(grant)
    start = time.monotonic()
    await result
    assert time.monotonic() - start < 2


async def test_looks_repeat_no_event(clients: ClientBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "_LOOK_SECONDS", 0.05)
    handle = await clients.client.enqueue("q", payload())
    events = await clients.waiting(_all(handle))
    await asyncio.sleep(0.5)
    await handle.cancel()
    assert _states(await events) == ["ready", "cancelled"]


async def test_a_gap_is_looked_over_when_it_ends(
    clients: ClientBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody listened for a while: what happened meanwhile is not left to the next safety look."""
    monkeypatch.setattr(watching, "_LOOK_SECONDS", 30.0)
    monkeypatch.setattr(watching, "_RENEW_SECONDS", 0.3)
    monkeypatch.setattr(watching, "_BLOCK_SECONDS", 0.1)
    handle = await clients.client.enqueue("q", payload())
    result = await clients.waiting(handle.result(20))
    await asyncio.sleep(0.05)
    pipe = clients.worker.redis.pipeline(transaction=True)
    pipe.hdel(clients.worker.key("run"), "lsn")
    pipe.hset(clients.worker.key("j", handle.id), "s", "F")
    await pipe.execute()
    async with asyncio.timeout(3):
        await result


async def test_a_thousand_wait_with_few_calls(
    clients: ClientBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a connection nor a poll for each."""
    monkeypatch.setattr(watching, "_LOOK_SECONDS", 2.0)
    redis = clients.worker.redis

    async def facts(section: str) -> list[dict[str, Any]]:
        """Of each server."""
        if not hasattr(redis, "get_primaries"):
            return [await redis.info(section)]
        return list((await redis.info(section, target_nodes="primaries")).values())

    async def calls() -> int:
        found = [each.get("cmdstat_fcall", {"calls": 0}) for each in await facts("commandstats")]
        return sum(int(each["calls"]) for each in found)

    async def connections() -> int:
        return sum(int(each["total_connections_received"]) for each in await facts("stats"))

    handles = await clients.client.enqueue_many("q", [payload() for _ in range(1000)])
    connected = await connections()
    results = [asyncio.create_task(handle.result(60)) for handle in handles]
    await clients.listened()
    await asyncio.sleep(1)  # the first look at all of them
    before = await calls()
    await asyncio.sleep(3)
    idle_calls = await calls() - before
    assert idle_calls <= 25, "a look or two at a hundred ids a call, and a renewal"
    await drain_queue(clients.worker)
    start = time.monotonic()
    assert await asyncio.gather(*results) == [{"ok": True}] * 1000
    told_seconds = time.monotonic() - start
    assert told_seconds < 2
    await asyncio.gather(*(handle.view() for handle in handles))
    assert await connections() - connected < 40
    print(f"1,000 waiting: {idle_calls} calls in 3 s; all told {told_seconds:.2f} s after the last")


async def test_listening_goes_on_after_an_outage() -> None:
    """Q37: the server is killed while handles wait, comes back, and the end is heard at once."""
    async with ValkeyServer() as server, Client.connect(server.url) as client:
        worker = StoreBench(RedisStore(server.url))
        await worker.configure()
        bench = ClientBench(client, worker, server.url)
        first, second = await client.enqueue_many("q", [payload(), payload()])
        waiting = await bench.waiting(first.result(60))
        events = await bench.waiting(_all(second))
        await asyncio.sleep(0.2)
        await server.kill()
        await asyncio.sleep(1)
        assert not waiting.done()
        await server.start()
        await worker.reconnect()
        await bench.succeed()
        await bench.succeed()
        start = time.monotonic()
        assert await waiting == {"ok": True}
        assert _states(await events)[-1] == "succeeded"
        assert _states(await events).count("ready") == 1
        assert time.monotonic() - start < 4
        await worker.store.close()


async def test_breaking_off_leaves_no_watch(clients: ClientBench) -> None:
    handle = await clients.client.enqueue("q", payload())
    async with aclosing(handle.events()) as events:
        async for event in events:
            assert event.state is JobState.READY
            break
    feeds = clients.client._connection._watcher._feeds
    assert all(not feed._watches for feed in feeds.values())
