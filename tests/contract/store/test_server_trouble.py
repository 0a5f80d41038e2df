"""What a server in trouble makes of the store: memory used up, wrong settings, garbage, restarts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import redis as redis_py
from redis import exceptions as errors

from llmqueue.errors import QueueFull, StoreMisconfigured, StoreUnavailable, UsageError
from llmqueue.outcome import Usage
from llmqueue.store import RedisStore, connect
from llmqueue.store.address import redacted
from llmqueue.store.connection import translated
from support.storebench import StoreBench
from support.valkey import ValkeyServer, free_port


@pytest.fixture
async def server() -> AsyncIterator[ValkeyServer]:
    async with ValkeyServer() as server:
        yield server


async def test_memory_used_up(server: ValkeyServer) -> None:
    """Q42: at maxmemory new jobs are refused as QueueFull; claims and settles go on."""
    store = await connect(server.url)
    bench = StoreBench(store)
    await bench.configure()
    await bench.enqueue(20)
    used = (await bench.redis.info("memory"))["used_memory"]
    await bench.redis.config_set("maxmemory", used)
    with pytest.raises(QueueFull, match="memory"):
        await bench.enqueue(payload=b"x" * 50_000)
    for _ in range(20):
        grant = await bench.take()
        assert await bench.send(grant) == [True]
        reply = await bench.settle(grant, usage=Usage(1, 1), result=b"r" * 1000)
        assert reply.verdict == "settled"
        await asyncio.sleep(0.01)
    assert (await bench.states())["succeeded"] == 20
    await store.close()


async def test_memory_used_up_and_no_library(server: ValkeyServer) -> None:
    """A server without free memory takes no library; jobs leave it all the same."""
    store = await connect(server.url)
    bench = StoreBench(store)
    await bench.configure()
    await bench.enqueue(2)
    await bench.redis.function_flush()
    await bench.redis.config_set("maxmemory", 1)
    with pytest.raises(QueueFull, match="memory"):
        await bench.enqueue()
    await bench.run_one()
    await bench.redis.config_set("maxmemory", 0)
    await bench.run_one()
    assert await bench.states() == {"succeeded": 2}
    assert len(await bench.redis.function_list()) == 1
    await store.close()


async def test_a_policy_that_evicts_is_refused_at_start(server: ValkeyServer) -> None:
    """Q42: Redis could drop jobs: a clear error instead."""
    store = RedisStore(server.url)
    await store._redis.client.config_set("maxmemory-policy", "allkeys-lru")
    with pytest.raises(StoreMisconfigured, match="noeviction"):
        await connect(server.url)
    await store.close()


async def test_no_append_only_file_is_a_warning() -> None:
    async with ValkeyServer(options={"appendonly": "no"}) as server:
        told: list[str] = []
        store = await connect(server.url, warn=told.append)
        assert told == await store.check()
        assert "append-only" in told[0]
        await store.close()


async def test_a_wrong_password_is_misconfiguration() -> None:
    async with ValkeyServer() as server:
        admin = RedisStore(server.url)
        await admin._redis.client.config_set("requirepass", "geheim")
        await admin.close()
        with pytest.raises(StoreMisconfigured) as error:
            await connect(server.url)
        wrong = server.url.replace("redis://", "redis://:falsch@")
        with pytest.raises(StoreMisconfigured) as other:
            await connect(wrong)
    assert "falsch" not in str(error.value) + str(other.value)


async def test_nobody_listens() -> None:
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        await connect(f"redis://127.0.0.1:{free_port()}")


@pytest.mark.parametrize("url", ["http://x", "nonsense", "redis://u:secret@h:notaport"])
async def test_a_url_that_is_none(url: str) -> None:
    with pytest.raises(UsageError) as error:
        await connect(url)
    assert "secret" not in str(error.value)


def test_passwords_are_not_shown() -> None:
    assert redacted("redis://u:p@h:1/0") == "redis://***@h:1/0"
    assert redacted("redis://h:1") == "redis://h:1"
    assert redacted("redis://h:1/0?password=p") == "redis://h:1/0?***"
    assert redacted("redis://:p@[::1") == "***"


async def test_a_key_of_another_type(server: ValkeyServer) -> None:
    """S38: somebody else's data under our name is misconfiguration, never a silent zero."""
    store = RedisStore(server.url)
    bench = StoreBench(store)
    await bench.configure()
    await bench.redis.set(bench.key("workers"), "garbage")
    with pytest.raises(StoreMisconfigured, match="WRONGTYPE"):
        await store.snapshot(bench.queue, horizon_seconds=0)
    await store.close()


async def test_idle_connections_then_a_job(server: ValkeyServer) -> None:
    """Q38: a waiting worker whose connection idles past the socket timeout gets its job at once
    (this suite's redis-py is whatever is installed: 7 and 8 behave alike)."""
    store = RedisStore(server.url)
    bench = StoreBench(store)
    await bench.configure()
    await bench.redis.delete(bench.key("wake", bench.queue))
    assert int(redis_py.__version__.split(".")[0]) in (7, 8)
    assert not await store.wait_for_work(bench.queue, 6)
    waiting = asyncio.create_task(store.wait_for_work(bench.queue, 6))
    await asyncio.sleep(0.1)
    await bench.enqueue()
    assert await asyncio.wait_for(waiting, 1)
    assert (await bench.take()).id
    await store.close()


async def test_the_server_restarts_between_calls(server: ValkeyServer) -> None:
    """Q37: after a restart the library is loaded again and everything is where it was."""
    store = RedisStore(server.url)
    bench = StoreBench(store)
    await bench.configure()
    await bench.enqueue(3)
    await bench.redis.function_flush()
    assert await bench.states() == {"ready": 3}
    await asyncio.sleep(1.1)  # everysec
    await server.restart()
    with pytest.raises(StoreUnavailable):
        await bench.claim()
    assert (await bench.claim()).grants
    await store.close()


async def test_wakeups_are_heard(server: ValkeyServer) -> None:
    """The planner is told when an empty queue gets its first job."""
    store = RedisStore(server.url)
    bench = StoreBench(store)
    await bench.configure()
    heard = asyncio.create_task(anext(store.wakeups()))
    await asyncio.sleep(0.2)
    await bench.enqueue()
    assert await asyncio.wait_for(heard, 2) == bench.queue
    await store.close()


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (errors.ReadOnlyError("You can't write against a read only replica"), StoreUnavailable),
        (errors.BusyLoadingError("Redis is loading"), StoreUnavailable),
        (errors.ClusterDownError("CLUSTERDOWN down"), StoreUnavailable),
        (errors.MasterDownError("MASTERDOWN"), StoreUnavailable),
        (errors.TryAgainError("TRYAGAIN"), StoreUnavailable),
        (errors.ResponseError("NOREPLICAS not enough"), StoreUnavailable),
        (errors.ResponseError("MISCONF disk"), StoreUnavailable),
        (errors.ResponseError("BUSY script"), StoreUnavailable),
        (errors.TimeoutError("slow"), StoreUnavailable),
        (OSError("gone"), StoreUnavailable),
        (errors.RedisError("odd"), StoreUnavailable),
        (errors.OutOfMemoryError("used up"), QueueFull),
        (errors.NoPermissionError("acl"), StoreMisconfigured),
        (errors.AuthenticationError("wrong"), StoreMisconfigured),
        (errors.ResponseError("WRONGTYPE x"), StoreMisconfigured),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else value.__name__,
)
def test_one_outcome_for_each_error(raised: Exception, expected: type[Exception]) -> None:
    """S14: whatever fails, one path and one outcome."""
    with pytest.raises(expected), translated():
        raise raised
