"""LLMQueues that are deleted and made anew under the same name, on a real store."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from llmqueue.endings import end
from llmqueue.store import RedisStore
from llmqueue_operator.connections import Connections
from llmqueue_operator.controller import Controller
from llmqueue_operator.kube.kinds import LLMQUEUES, Kind
from llmqueue_operator.metrics import Metrics
from llmqueue_operator.settings import OperatorSettings
from support.clusterobjects import llmqueue

KEY = "default/q"
SHARED = {"limits": {"requestsPerMinute": 60, "sharedBudget": {"name": "team"}}}


class Listing:
    """Stands for `kube.Cluster`: nothing there but LLMQueues."""

    watched = "default"

    def __init__(self) -> None:
        self.queues: list[dict[str, Any]] = []

    async def all_of(self, kind: Kind) -> AsyncIterator[dict[str, Any]]:
        for raw in self.queues if kind is LLMQUEUES else ():
            yield raw


class Bench:
    """A leader whose loop a test turns by hand."""

    def __init__(self, folder: Path, store: RedisStore) -> None:
        settings = OperatorSettings(
            namespace="default",
            pod="p",
            worker_image="w",
            connections_dir=folder,
            resync_seconds=0.01,
        )
        self.store, self.version, self.cluster = store, 0, Listing()
        self.controller = Controller(settings, self.cluster, Metrics())  # type: ignore[arg-type]
        self.lead(True)

    def lead(self, leading: bool) -> None:
        leadership = self.controller.leadership
        leadership._renewed_at = time.monotonic() + 1000 if leading else None
        (leadership.leading.set if leading else leadership.leading.clear)()

    def show(self, name: str = "q", *, uid: str = "u", gone: bool = False, **fields: Any) -> None:
        """An event of the watch."""
        self.version += 1
        raw = llmqueue(name, uid=uid, version=self.version, **fields)
        self.controller.observe(LLMQUEUES, raw, deleted=gone)

    async def look(self) -> set[str]:
        """As a tick does; which queues enqueue knows then."""
        reconciler = self.controller._reconciler
        groups = [reconciler.assembly(each).group for each in self.controller.world.budgets()]
        await self.controller._lookout.look([g for g in groups if g], lambda _: 10.0)
        return await self.registered()

    async def registered(self) -> set[str]:
        return set(await self.store._redis.entries(fresh=True))

    async def registered_are(self, *keys: str) -> None:
        async with asyncio.timeout(10):
            while await self.registered() != set(keys):
                await asyncio.sleep(0.02)


@pytest.fixture
async def bench(
    connections: Connections, store: RedisStore, tmp_path: Path
) -> AsyncIterator[Bench]:
    (tmp_path / "away" / "url").unlink()
    bench = Bench(tmp_path, store)
    yield bench
    await bench.controller._connections.close()


@asynccontextmanager
async def running(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    task = asyncio.create_task(work)
    try:
        yield
        assert not task.done()
    finally:
        await end(task)


@pytest.mark.parametrize("sections", [{}, SHARED], ids=["own budget", "shared budget"])
async def test_made_anew_after_it_was_retired(bench: Bench, sections: dict[str, Any]) -> None:
    """S49: its configuration is the same to the letter, yet the store has it no more."""
    others = {"default/b"} if sections else set()
    for name in ["q", "b"] if sections else ["q"]:
        bench.show(name, uid=f"uid-{name}", **sections)
    assert await bench.look() == {KEY, *others}
    async with running(bench.controller._retire_gone()), asyncio.timeout(20):
        for n in range(3):
            bench.show(uid="uid-q" if n == 0 else f"new-{n}", gone=True, **sections)
            await bench.registered_are(*others)
            while bench.controller.world.budget_of(KEY) is not None:
                await asyncio.sleep(0.02)
            bench.show(uid=f"new-{n + 1}", **sections)
            assert await bench.look() == {KEY, *others}


async def test_made_anew_before_anybody_saw_that_it_was_gone(bench: Bench) -> None:
    """Nothing is taken from enqueue, and what was forgotten is written again."""
    bench.show(uid="old")
    await bench.look()
    bench.show(uid="old", gone=True)
    bench.show(uid="new")
    assert await bench.controller._retire({KEY})
    assert await bench.registered() == {KEY}
    assert await bench.look() == {KEY}


async def test_made_anew_while_it_is_being_retired(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tick runs between the question and the removal: the next one has to write it again."""
    bench.show(uid="old")
    await bench.look()
    bench.show(uid="old", gone=True)
    used = await bench.controller._connections.store("default")
    remove = used.remove_queue

    async def slow(queue: str) -> None:
        bench.show(uid="new")
        assert await bench.look() == {KEY}
        await remove(queue)

    monkeypatch.setattr(used, "remove_queue", slow)
    assert await bench.controller._retire({KEY})
    assert await bench.registered() == set()
    assert await bench.look() == {KEY}


async def test_what_went_while_nobody_led(bench: Bench) -> None:
    """The first thing of a term; who does not lead remembers nothing of it."""
    for name in "qb":
        bench.show(name, uid=name)
    await bench.look()
    bench.lead(False)
    bench.show(uid="q", gone=True)
    assert bench.controller._gone == set()
    assert not await bench.controller._retire(None)
    assert await bench.registered() == {KEY, "default/b"}
    bench.lead(True)
    await bench.controller._retire_before()
    assert await bench.registered() == {"default/b"}


async def test_a_full_list_writes_what_the_store_has_lost(bench: Bench) -> None:
    """S17: a failover to a replica that was behind: configured once, and gone since."""
    bench.show(uid="q")
    bench.cluster.queues = [llmqueue(uid="q", version=1)]
    await bench.look()
    await bench.store._redis.client.hdel("llmqueue:registry", f"q:{KEY}")
    assert await bench.look() == set(), "nothing says that it is gone"
    async with running(bench.controller._resync()), asyncio.timeout(10):
        while not await bench.look():
            await asyncio.sleep(0.02)


async def test_a_redis_that_is_away_does_not_hold_the_others_up(
    bench: Bench, tmp_path: Path
) -> None:
    """S13: what is gone while one of two stores is away is retired on the other one at once."""
    (tmp_path / "away" / "url").write_text("redis://127.0.0.1:1/0")
    bench.show(uid="q")
    await bench.look()
    async with running(bench.controller._retire_gone()):
        await asyncio.sleep(1)  # the first round has failed for the one that is away
        bench.show(uid="q", gone=True)
        async with asyncio.timeout(3):
            while await bench.registered():
                await asyncio.sleep(0.02)
