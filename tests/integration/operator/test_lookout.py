"""What the store says of many budgets, from a real one."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from integration.operator.conftest import settle
from llmqueue.config import Limit
from llmqueue.errors import StoreUnavailable
from llmqueue.states import JobState, LimitUnit
from llmqueue.store import RedisStore
from llmqueue_operator.connections import Connections
from llmqueue_operator.errors import NotLeading
from llmqueue_operator.groups import Group, assemble
from llmqueue_operator.lookout import METER_SECONDS, Lookout, Sight
from llmqueue_operator.planning import ConditionType, Reason
from llmqueue_operator.views import queue_view
from support.clusterobjects import llmqueue
from support.storebench import StoreBench
from support.valkey import ValkeyServer


def group(name: str = "q", **sections: Any) -> Group:
    found = assemble([queue_view(llmqueue(name, **sections))]).group
    assert found is not None
    return found


class Bench:
    def __init__(self, connections: Connections) -> None:
        self.now, self.leading = 1000.0, True
        self.date = datetime(2026, 11, 30, tzinfo=UTC)
        self.lookout = Lookout(
            connections,
            lambda: self.now,
            check=self._check,
            wall_clock=self._wall_clock,
            tell=lambda connection, error: self.told.append((connection, type(error))),
        )
        self.told: list[tuple[str, type]] = []

    def _wall_clock(self) -> float:
        return self.date.timestamp()

    def _check(self) -> None:
        if not self.leading:
            raise NotLeading("another replica leads")

    async def look(self, *groups: Group, horizon: float = 10.0) -> dict[str, Sight]:
        return await self.lookout.look(groups, lambda _: horizon)

    async def one(self, found: Group) -> Sight:
        return (await self.look(found))[found.name]


@pytest.fixture
def bench(connections: Connections, store: RedisStore) -> Bench:
    return Bench(connections)


async def generation(store: RedisStore, queue: str = "default/q") -> int:
    return (await store.registry())[queue].generation


async def limits(store: RedisStore, queue: str = "default/q") -> tuple[Limit, ...]:
    return (await store._redis.entries(fresh=True))[queue].limits


async def test_the_first_look_configures(bench: Bench, store: RedisStore) -> None:
    """Enqueue works from then on."""
    sight = await bench.one(group())
    assert (sight.error, sight.away_seconds, sight.problem) == ("", 0.0, None)
    assert sight.snapshot is not None
    assert sight.snapshot.epoch is not None
    assert [each.queue for each in sight.snapshot.queues] == ["default/q"]
    assert await limits(store) == (Limit(LimitUnit.REQUESTS, 60),)


async def test_a_changed_limit_is_written_and_nothing_else(bench: Bench, store: RedisStore) -> None:
    await bench.look(group(), group("b"))
    before = await generation(store), await generation(store, "default/b")
    changed = group(limits={"requestsPerMinute": 30})
    await bench.look(changed, group("b"))
    await store._redis.entries(fresh=True)
    assert await generation(store) > before[0]
    assert await generation(store, "default/b") == before[1]
    assert await limits(store) == (Limit(LimitUnit.REQUESTS, 30),)


async def test_what_is_as_it_was_is_not_written(bench: Bench, store: RedisStore) -> None:
    """Each tick would otherwise cost a write for every budget."""
    await bench.one(group())
    await store._redis.client.delete("llmqueue:registry")
    await bench.one(group())
    assert not await store._redis.client.exists("llmqueue:registry")
    bench.lookout.forget("default/other")
    await bench.one(group())
    assert not await store._redis.client.exists("llmqueue:registry")
    bench.lookout.forget("default/q")
    await bench.one(group())
    assert await limits(store)


@pytest.mark.parametrize(
    ("zone", "written"),
    [
        pytest.param({"dayTimeZone": "America/Los_Angeles"}, True, id="calendar days"),
        pytest.param({}, False, id="any 24 hours"),
    ],
)
async def test_days_are_listed_anew_each_month(
    bench: Bench, store: RedisStore, zone: dict[str, str], written: bool
) -> None:
    """Long before the list ends, and without a restart."""
    found = group(limits={"requestsPerDay": 100, **zone})
    await bench.one(found)
    await store._redis.client.delete("llmqueue:registry")
    bench.date = datetime(2026, 11, 30, 23, 59, tzinfo=UTC)
    await bench.one(found)
    assert not await store._redis.client.exists("llmqueue:registry")
    bench.date = datetime(2026, 12, 1, tzinfo=UTC)
    await bench.one(found)
    assert bool(await store._redis.client.exists("llmqueue:registry")) == written


async def test_a_new_term_writes_all_anew(bench: Bench, store: RedisStore) -> None:
    await bench.look(group(), group("b"))
    await store._redis.client.delete("llmqueue:registry")
    bench.lookout.forget()
    await bench.look(group(), group("b"))
    assert set(await store._redis.entries(fresh=True)) == {"default/q", "default/b"}


async def test_jobs_and_horizon(bench: Bench, store: RedisStore) -> None:
    found = group()
    await bench.one(found)
    producer = StoreBench(store)
    producer.code = (await store.registry())["default/q"].code
    await producer.enqueue(3)
    await producer.enqueue(delay_seconds=30)
    for horizon, due in ((10.0, 0), (60.0, 1)):
        sight = (await bench.look(found, horizon=horizon))["default/q"]
        assert sight.snapshot is not None
        (seen,) = sight.snapshot.queues
        assert (seen.states[JobState.READY], seen.due_soon) == (3, due)


async def test_housekeeping_is_caught_up_within_a_look(bench: Bench, store: RedisStore) -> None:
    """Two hundred jobs fall due at once: one look shows them, not a fraction."""
    found = group()
    await bench.one(found)
    producer = StoreBench(store)
    producer.code = (await store.registry())["default/q"].code
    await producer.enqueue(200, delay_seconds=1)
    await producer.advance(5)
    sight = await bench.one(found)
    assert sight.snapshot is not None
    assert not sight.snapshot.again
    assert sight.snapshot.queues[0].states[JobState.READY] == 200


async def test_nobody(bench: Bench) -> None:
    assert await bench.look() == {}


# ---------------------------------------------------------------- trouble


async def test_a_store_that_is_away_hides_its_own_budgets_only(bench: Bench) -> None:
    """S13: held, with its age; the other Redis is looked at as ever."""
    lost = group("lost", redis={"connection": "away"})
    sights = await bench.look(group(), lost)
    assert sights["default/q"].snapshot is not None
    assert sights["default/lost"].snapshot is None
    assert "cannot be reached" in sights["default/lost"].error
    assert sights["default/lost"].problem is None, "waiting helps"
    bench.now += 42
    sight = await bench.one(lost)
    assert sight.away_seconds == 42


async def test_a_connection_that_is_not_in_the_settings(bench: Bench) -> None:
    """S38: waiting does not help, and the condition says what does."""
    sight = await bench.one(group(redis={"connection": "typo"}))
    assert sight.problem is not None
    assert sight.problem.type == ConditionType.STORE_AVAILABLE
    assert sight.problem.reason == Reason.CONNECTION_UNUSABLE
    assert "typo" in sight.error


async def test_it_comes_back(connections: Connections, tmp_path: Path) -> None:
    """S13, S17: seen again at the first look after; the age begins anew the next time."""
    async with ValkeyServer() as server:
        settle(tmp_path, "own", server.url)
        bench, found = Bench(connections), group(redis={"connection": "own"})
        assert (await bench.one(found)).snapshot is not None
        await server.stop()
        assert (await bench.one(found)).away_seconds == 0
        bench.now += 600
        assert (await bench.one(found)).away_seconds == 600
        await server.start()
        sight = await bench.one(found)
        assert sight.snapshot is not None
        assert sight.away_seconds == 0
        await server.stop()
        assert (await bench.one(found)).away_seconds == 0


async def test_redis_elsewhere(connections: Connections, tmp_path: Path, store: RedisStore) -> None:
    """S17: the Secret has another URL: the next look goes there."""
    bench, found = Bench(connections), group()
    await bench.one(found)
    async with ValkeyServer() as other:
        settle(tmp_path, "default", other.url)
        sight = await bench.one(found)
        assert sight.snapshot is not None
        assert sight.snapshot.epoch is None, "the planner is told that this one knows nothing yet"
        bench.lookout.forget("default/q")
        sight = await bench.one(found)
        assert sight.snapshot is not None
        assert sight.snapshot.epoch is not None
        await connections.close()


async def test_spoilt_keys_of_one_budget(bench: Bench, store: RedisStore) -> None:
    """S14, S38: its own sight fails, whether at writing or at reading; the others are fine."""
    redis, key = store._redis.client, StoreBench(store).key("cfg")
    await bench.look(group(), group("b"))
    await redis.delete(key)
    await redis.set(key, "garbage")
    for _ in range(2):
        sights = await bench.look(group(), group("b"))
        assert sights["default/q"].snapshot is None
        assert "WRONGTYPE" in sights["default/q"].error
        assert sights["default/b"].snapshot is not None
        bench.lookout.forget()
    await redis.delete(key)
    assert (await bench.one(group())).snapshot is not None, "what failed is written again"


async def test_memory_used_up(bench: Bench, store: RedisStore) -> None:
    """Q42: planning goes on; what cannot be written is that budget's trouble, not the operator's."""
    await bench.one(group())
    await store._redis.client.config_set("maxmemory", 1)
    sights = await bench.look(group(), group("new"))
    assert sights["default/q"].snapshot is not None
    assert sights["default/new"].snapshot is None
    assert "memory" in sights["default/new"].error
    await store._redis.client.config_set("maxmemory", 0)
    assert (await bench.one(group("new"))).snapshot is not None


async def test_a_deposed_leader_configures_nothing(bench: Bench, store: RedisStore) -> None:
    """S50: what it knows may be of yesterday; what it only reads does no harm."""
    await bench.one(group())
    bench.leading = False
    assert (await bench.one(group())).snapshot is not None
    with pytest.raises(NotLeading):
        await bench.one(group(limits={"requestsPerMinute": 30}))
    assert await limits(store) == (Limit(LimitUnit.REQUESTS, 60),)
    bench.leading = True
    await bench.one(group(limits={"requestsPerMinute": 30}))
    assert await limits(store) == (Limit(LimitUnit.REQUESTS, 30),)


async def test_a_store_that_is_silent_is_waited_for_once(
    bench: Bench, connections: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S13: two hundred budgets must not wait for one silence after the other."""
    store, asked = await connections.store("default"), 0

    async def configure(*_: Any) -> str:
        nonlocal asked
        asked += 1
        raise StoreUnavailable("no answer")

    groups = [group(f"q{n}") for n in range(100)]
    with monkeypatch.context() as silent:
        silent.setattr(store, "configure", configure)
        sights = await bench.look(*groups)
    assert 1 <= asked <= 16, "those that were under way at the same time"
    assert len(sights) == 100
    assert {sight.error for sight in sights.values()} == {"no answer"}
    sights = await bench.look(*groups)
    assert all(sight.snapshot is not None for sight in sights.values()), "the next look asks anew"


async def test_a_forgotten_budget_has_not_been_away(bench: Bench) -> None:
    lost = group("lost", redis={"connection": "away"})
    await bench.one(lost)
    bench.now += 42
    bench.lookout.forget("default/lost")
    assert (await bench.one(lost)).away_seconds == 0


# ---------------------------------------------------------------- what is told and counted


async def test_meters_are_read_now_and_then(bench: Bench, store: RedisStore) -> None:
    async def read() -> bool:
        sight = await bench.one(group())
        assert sight.snapshot is not None
        return sight.snapshot.queues[0].meters is not None

    assert await read(), "the first look shows them"
    assert not await read()
    bench.now += METER_SECONDS
    assert await read()
    bench.lookout.forget()
    assert await read(), "a new term knows nothing"


async def test_each_look_at_a_connection_of_the_settings_is_told_of(
    bench: Bench, store: RedisStore
) -> None:
    """Who misspells a name in an LLMQueue wakes nobody who is on call for Redis."""
    await bench.one(group())
    await bench.look(group("x", redis={"connection": "nowhere"}))
    assert bench.told == [("default", type(None))]


async def test_a_connection_is_all_right_when_all_its_budgets_are(
    bench: Bench, store: RedisStore
) -> None:
    """They are looked at in turn, and a part of a cluster may be away: no alert would ever last."""
    await bench.one(group())
    await store._redis.client.config_set("maxmemory", 1)
    await bench.one(group("new"))
    await bench.one(group())
    assert bench.told[-2:] == [("default", StoreUnavailable)] * 2
    await store._redis.client.config_set("maxmemory", 0)
    await bench.one(group("new"))
    assert bench.told[-1] == ("default", type(None))


async def test_a_budget_with_spoiled_keys_is_not_the_connections_fault(
    bench: Bench, store: RedisStore
) -> None:
    await bench.one(group())
    key = StoreBench(store).key("cfg")
    await store._redis.client.delete(key)
    await store._redis.client.set(key, "garbage")
    assert (await bench.one(group())).error
    assert bench.told[-1] == ("default", type(None))
