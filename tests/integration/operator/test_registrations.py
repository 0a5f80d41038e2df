"""Queues whose LLMQueue is gone: enqueue refuses them, their jobs stay."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from llmqueue.errors import UnknownQueue
from llmqueue.spec import budget_config, queue_config
from llmqueue.store import RedisStore
from llmqueue_operator.connections import Connections
from llmqueue_operator.kube.kinds import LLMQUEUES
from llmqueue_operator.registrations import Retired, retire
from llmqueue_operator.views import queue_view
from llmqueue_operator.world import World
from support.clusterobjects import llmqueue
from support.storebench import StoreBench

NOTHING = Retired(frozenset(), complete=True)


async def register(store: RedisStore, *raws: dict[str, Any]) -> None:
    for raw in raws:
        resource = queue_view(raw).resource
        assert resource is not None
        await store.configure(budget_config([resource]), [queue_config(resource)])


async def registered(store: RedisStore) -> set[str]:
    return set(await store._redis.entries(fresh=True))


class Bench:
    def __init__(self, connections: Connections, store: RedisStore) -> None:
        self.connections, self.store, self.world = connections, store, World()

    async def retire(
        self, keys: Iterable[str] | None, *, watched: str | None = "default"
    ) -> Retired:
        return await retire(self.connections, self.world, watched=watched, keys=keys)


@pytest.fixture
def bench(connections: Connections, store: RedisStore, tmp_path: Any) -> Bench:
    (tmp_path / "away" / "url").unlink()
    return Bench(connections, store)


async def test_gone(bench: Bench) -> None:
    """S48: refused from then on; the others are not."""
    await register(bench.store, llmqueue("q"), llmqueue("b"))
    bench.world.observe(LLMQUEUES, llmqueue("b"))
    assert await bench.retire({"default/q"}) == Retired(frozenset({"default/q"}), complete=True)
    assert await registered(bench.store) == {"default/b"}
    assert await bench.retire({"default/q"}) == NOTHING, "told once"
    with pytest.raises(UnknownQueue):
        await bench.store._redis.entry("default/q")


async def test_jobs_are_kept_and_adopted_again(bench: Bench) -> None:
    await register(bench.store, llmqueue("q"))
    producer = StoreBench(bench.store)
    producer.code = (await bench.store.registry())["default/q"].code
    (job,) = await producer.enqueue()
    await bench.retire({"default/q"})
    await register(bench.store, llmqueue("q", uid="another"))
    assert await producer.state(job) == "ready"
    assert (await producer.take()).id == job


@pytest.mark.parametrize(
    ("raw", "kept"),
    [
        pytest.param(llmqueue("q"), True, id="there"),
        pytest.param(llmqueue("q", deleting=True), False, id="being deleted"),
        pytest.param(
            llmqueue("q", limits={}), True, id="one that cannot be read keeps what it had"
        ),
        pytest.param(llmqueue("q", redis={"connection": "other"}), False, id="moved elsewhere"),
        pytest.param(None, False, id="gone"),
    ],
)
@pytest.mark.parametrize("keys", [{"default/q"}, None], ids=["asked for", "all"])
async def test_who_is_served(
    bench: Bench, raw: dict[str, Any] | None, kept: bool, keys: set[str] | None
) -> None:
    await register(bench.store, llmqueue("q"))
    if raw is not None:
        bench.world.observe(LLMQUEUES, raw)
    removed = frozenset[str]() if kept else frozenset({"default/q"})
    assert await bench.retire(keys) == Retired(removed, complete=True)
    assert ("default/q" in await registered(bench.store)) is kept


@pytest.mark.parametrize(
    ("watched", "left"),
    [
        pytest.param("default", {"default/q", "other/q", "default2/q"}, id="one namespace"),
        pytest.param(None, {"default/q"}, id="all namespaces"),
    ],
)
async def test_other_operators_queues_on_the_same_redis(
    bench: Bench, watched: str | None, left: set[str]
) -> None:
    """A namespace that is not watched is another operator's."""
    await register(
        bench.store,
        llmqueue("q"),
        llmqueue("gone"),
        llmqueue("q", namespace="other"),
        llmqueue("q", namespace="default2"),
    )
    bench.world.observe(LLMQUEUES, llmqueue("q"))
    await bench.retire(None, watched=watched)
    assert await registered(bench.store) == left


async def test_only_what_was_asked_for(bench: Bench) -> None:
    """Before the first full list the world knows next to nothing."""
    await register(bench.store, llmqueue("q"), llmqueue("b"))
    await bench.retire({"default/b", "default/never"})
    assert await registered(bench.store) == {"default/q"}


async def test_a_store_that_is_away_leaves_it_to_be_done(bench: Bench, tmp_path: Any) -> None:
    """S13: asked again later; what the other store has is removed now."""
    (tmp_path / "away" / "url").write_text("redis://127.0.0.1:1/0")
    await register(bench.store, llmqueue("q"))
    assert await bench.retire({"default/q"}) == Retired(frozenset({"default/q"}), complete=False)
    assert await registered(bench.store) == set()
    assert await bench.retire(None) == Retired(frozenset(), complete=False)
    (tmp_path / "away" / "url").unlink()
    assert await bench.retire({"default/q"}) == NOTHING


async def test_no_connections(bench: Bench, tmp_path: Any) -> None:
    (tmp_path / "default" / "url").unlink()
    assert await bench.retire({"default/q"}) == NOTHING


async def test_a_namesake_that_comes_while_others_are_removed(
    bench: Bench, connections: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked right before each removal: it has been configured meanwhile, and must stay so."""
    await register(bench.store, llmqueue("a"), llmqueue("b"))
    used = await connections.store("default")
    remove = used.remove_queue

    async def slow(queue: str) -> None:
        await remove(queue)
        for name in "ab":
            if f"default/{name}" != queue:
                bench.world.observe(LLMQUEUES, llmqueue(name, uid="new"))

    monkeypatch.setattr(used, "remove_queue", slow)
    done = await bench.retire(None)
    assert done.complete
    assert len(done.removed) == 1
    assert await registered(bench.store) == {"default/a", "default/b"} - done.removed
