"""Many budgets in one look."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from llmqueue.config import BudgetConfig, QueueConfig
from llmqueue.errors import StoreMisconfigured, StoreRefused, StoreUnavailable
from llmqueue.states import JobState, OutcomeClass, ProviderType
from llmqueue.store import RedisStore
from llmqueue.store.executor import PIPELINE_CALLS
from llmqueue.store.port import ClaimRequest
from llmqueue.store.snapshots import BudgetSnapshot
from support.storebench import UNLIMITED, StoreBench, beat
from support.valkey import ValkeyServer


async def benches(store: RedisStore, *names: str) -> list[StoreBench]:
    """One queue on a budget of its own for each name."""
    found = []
    for name in names:
        each = StoreBench(
            store,
            queue=name,
            budget=BudgetConfig(name, UNLIMITED),
            config=QueueConfig(name, name, ProviderType.OPENAI),
        )
        await each.configure()
        found.append(each)
    return found


@pytest.fixture
async def server() -> AsyncIterator[ValkeyServer]:
    async with ValkeyServer() as server:
        yield server


def steady(found: Any) -> BudgetSnapshot:
    """Without what grows from one look to the next."""
    assert isinstance(found, BudgetSnapshot), found
    queues = tuple(replace(q, oldest_ready_seconds=0.0, busy_ms=0) for q in found.queues)
    workers = tuple(
        replace(w, age_seconds=0.0, longest_remaining_seconds=0.0, last_claim_age_seconds=None)
        for w in found.workers
    )
    limits = tuple(replace(limit, frees_seconds=0.0) for limit in found.limits)
    return replace(found, queues=queues, workers=workers, limits=limits, rate_factor=0.0)


async def test_many_are_what_single_ones_are(bench: StoreBench) -> None:
    a, b, c = await benches(bench.store, "default/a", "default/b", "default/c")
    await a.enqueue(3)
    await a.take()
    await beat(a)
    await b.enqueue(delay_seconds=5)
    await b.enqueue(2)
    horizons = {each.queue: 10.0 for each in (a, b, c)} | {"default/never": 1.0}
    many = await bench.store.snapshots(horizons)
    single = {n: await bench.store.snapshot(n, horizon_seconds=s) for n, s in horizons.items()}
    assert list(many) == list(horizons)
    assert {n: steady(each) for n, each in many.items()} == {
        n: steady(each) for n, each in single.items()
    }
    (shown,) = steady(many["default/a"]).queues
    assert (shown.states[JobState.READY], shown.states[JobState.LEASED]) == (2, 1)
    assert [worker.worker for worker in steady(many["default/a"]).workers] == ["w:1"]
    assert steady(many["default/never"]).epoch is None
    assert steady(many["default/c"]).epoch is not None


async def test_each_budget_has_its_own_horizon(bench: StoreBench) -> None:
    """Work that is due before a pod of that queue would be ready."""
    a, b = await benches(bench.store, "default/a", "default/b")
    for each in (a, b):
        await each.enqueue(delay_seconds=30)
    found = await bench.store.snapshots({"default/a": 10.0, "default/b": 60.0})
    due = {name: each.queues[0].due_soon for name, each in found.items()}  # type: ignore[union-attr]
    assert due == {"default/a": 0, "default/b": 1}


async def test_none(bench: StoreBench) -> None:
    assert await bench.store.snapshots({}) == {}


@pytest.mark.parametrize("more", [-1, 0, 1])
async def test_around_the_length_of_a_pipeline(bench: StoreBench, more: int) -> None:
    """Answers stay with their budgets."""
    names = [f"default/n{n}" for n in range(PIPELINE_CALLS + more)]
    (last,) = await benches(bench.store, names[-1])
    await last.enqueue(4)
    found = await bench.store.snapshots(dict.fromkeys(names, 0.0))
    assert list(found) == names
    assert [each.budget for each in found.values()] == names  # type: ignore[union-attr]
    filled = [n for n, each in found.items() if each.queues]  # type: ignore[union-attr]
    assert filled == [names[-1]]


async def test_a_library_that_is_not_loaded(bench: StoreBench) -> None:
    """S17: Redis elsewhere, empty of functions: the same look loads it, for all budgets."""
    a, b = await benches(bench.store, "default/a", "default/b")
    await a.enqueue(2)
    await bench.redis.function_flush()
    found = await bench.store.snapshots({each.queue: 0.0 for each in (a, b)})
    assert steady(found["default/a"]).queues[0].states[JobState.READY] == 2
    assert steady(found["default/b"]).epoch is not None
    loaded = await bench.redis.function_list()
    nodes = loaded.values() if isinstance(loaded, dict) else [loaded]
    assert {len(libraries) for libraries in nodes} - {0} == {1}


async def test_keys_of_another_type_spoil_their_own_budget_only(bench: StoreBench) -> None:
    """S14, S38: one path, one outcome; the others are planned on as ever."""
    a, b, c = await benches(bench.store, "default/a", "default/b", "default/c")
    await b.redis.delete(b.key("cfg"))
    await b.redis.set(b.key("cfg"), "garbage")
    found = await bench.store.snapshots({each.queue: 0.0 for each in (a, b, c)})
    assert isinstance(found["default/b"], StoreMisconfigured)
    assert steady(found["default/a"]).epoch is not None
    assert steady(found["default/c"]).epoch is not None
    assert list(found) == ["default/a", "default/b", "default/c"]


async def test_a_server_that_is_away(server: ValkeyServer) -> None:
    """S13: an error in each one's place, and the next look after its return is fine."""
    store = RedisStore(server.url)
    names = [f"default/n{n}" for n in range(PIPELINE_CALLS + 5)]
    await benches(store, names[0])
    await server.stop()
    found = await store.snapshots(dict.fromkeys(names, 0.0))
    assert list(found) == names
    assert {type(each) for each in found.values()} == {StoreUnavailable}
    await server.start()
    found = await store.snapshots(dict.fromkeys(names, 0.0))
    assert steady(found[names[0]]).epoch is not None
    await store.close()


async def test_wrong_password(server: ValkeyServer) -> None:
    """S14."""
    admin, store = RedisStore(server.url), RedisStore(server.url.replace("//", "//:falsch@"))
    await admin._redis.client.config_set("requirepass", "geheim")
    found = await store.snapshots({"default/a": 0.0})
    assert isinstance(found["default/a"], StoreMisconfigured)
    assert "falsch" not in str(found["default/a"])
    await store.close()
    await admin.close()


async def test_memory_used_up(server: ValkeyServer) -> None:
    """Q42: planning goes on, also where the library must be loaded and cannot be."""
    store = RedisStore(server.url)
    (a,) = await benches(store, "default/a")
    await a.enqueue(2)
    await a.redis.config_set("maxmemory", 1)
    found = await store.snapshots({"default/a": 0.0})
    assert steady(found["default/a"]).queues[0].states[JobState.READY] == 2
    await a.redis.config_set("maxmemory", 0)
    await a.redis.function_flush()
    await a.redis.config_set("maxmemory", 1)
    found = await store.snapshots({"default/a": 0.0})
    assert steady(found["default/a"]).queues[0].states[JobState.READY] == 2
    await store.close()


async def test_what_the_planner_is_told_besides(bench: StoreBench) -> None:
    """Bytes, the oldest review, the learned estimate, whose worker it is; a settle of this very
    millisecond is one."""
    (before,) = (await bench.store.snapshot(bench.queue, horizon_seconds=0)).queues
    assert (before.stored_bytes, before.review_oldest_seconds, before.estimate_ratio) == (
        0,
        None,
        None,
    )
    await bench.enqueue(3, payload=b"x" * 100, worst_nano_usd=900_000_000)
    await bench.run_one(OutcomeClass.UNKNOWN)
    await bench.advance(7)
    await bench.run_one()
    await beat(bench)
    found = await bench.store.snapshot(bench.queue, horizon_seconds=0)
    (queue,) = found.queues
    assert queue.stored_bytes == 200
    assert queue.review_oldest_seconds == pytest.approx(7, abs=0.5)
    assert queue.last_settle_seconds is not None
    assert queue.estimate_ratio == 1.0
    assert [worker.queue for worker in found.workers] == [bench.queue]


async def test_rights_that_are_missing(server: ValkeyServer) -> None:
    """Of a command, and within a script: a person must act, and is told that it is rights."""
    admin = RedisStore(server.url)
    client = admin._redis.client
    (a,) = await benches(admin, "default/a")
    await a.enqueue()
    rules = ("on", ">p", "~*", "&*", "+@all")
    await client.execute_command("ACL", "SETUSER", "noinfo", *rules, "-info")
    await client.execute_command("ACL", "SETUSER", "nowrite", *rules, "-hset")
    for user in ("noinfo", "nowrite"):
        store = RedisStore(server.url.replace("//", f"//{user}:p@"))
        with pytest.raises(StoreRefused):
            await (store.check() if user == "noinfo" else a_claim(store))
        await store.close()
    await admin.close()


async def a_claim(store: RedisStore) -> None:
    await store.claim(ClaimRequest("default/a", "w:1", 1))


async def test_the_oldest_of_those_that_come_next(bench: StoreBench) -> None:
    """Whoever's turn it is, and of what waits: a job that was handed in for later waits since it is
    due."""

    async def oldest() -> float:
        found = await bench.store.snapshot(bench.queue, horizon_seconds=0)
        return found.queues[0].oldest_ready_seconds

    assert await oldest() == 0
    await bench.enqueue(tenant="late", delay_seconds=30)
    await bench.enqueue(tenant="a", feature="x")
    await bench.advance(20)
    await bench.enqueue(tenant="a", feature="y")
    await bench.enqueue(tenant="b")
    assert await oldest() == pytest.approx(20, abs=0.5)
    await bench.run_one()  # of a: now it is the turn of b
    assert await oldest() == pytest.approx(0, abs=0.5)
    await bench.advance(15)
    assert await oldest() == pytest.approx(15, abs=0.5)
    await bench.run_one()
    await bench.run_one()
    assert await oldest() == pytest.approx(0, abs=5.5), "not 35: it is due since 5 s at most"
