"""Primaries change and slots move while the store is used."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import pytest
from redis.crc import key_slot

from llmqueue.errors import StoreMisconfigured, StoreUnavailable
from llmqueue.outcome import Usage
from llmqueue.store import RedisStore, connect
from support.storebench import StoreBench
from support.topologies import ClusterOfThree, SentinelSet

Found = TypeVar("Found")


async def persist(call: Callable[[], Awaitable[Found]], *, seconds: float = 20.0) -> Found:
    """Repeat it as a caller does, until it is answered."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while True:
        try:
            return await call()
        except StoreUnavailable:
            assert loop.time() < deadline, f"not answered within {seconds} s"
            await asyncio.sleep(0.1)


@pytest.fixture
async def watched() -> AsyncIterator[SentinelSet]:
    async with SentinelSet() as found:
        yield found


@pytest.fixture
async def cluster() -> AsyncIterator[ClusterOfThree]:
    async with ClusterOfThree(replicas=True) as found:
        yield found


@pytest.fixture
async def three() -> AsyncIterator[ClusterOfThree]:
    async with ClusterOfThree() as found:
        yield found


async def half_way(url: str) -> tuple[StoreBench, Any]:
    """A queue with a ready job and one whose call runs."""
    bench = StoreBench(await connect(url))
    await bench.configure()
    await bench.enqueue(2)
    grant = await bench.take()
    assert await bench.send(grant) == [True]
    return bench, grant


async def go_on(bench: StoreBench, grant: Any) -> None:
    """Whatever was begun before ends as ever, also when a settlement is repeated."""
    assert await persist(bench.states) == {"ready": 1, "sent": 1}
    first = await persist(lambda: bench.settle(grant, usage=Usage(1, 1)))
    again = await persist(lambda: bench.settle(grant, usage=Usage(1, 1)))
    assert (first.verdict, again.verdict) == ("settled", "repeated")
    assert len(await bench.redis.xrange(bench.key("ledger"))) == 1
    await bench.run_one()
    assert await bench.states() == {"succeeded": 2}


async def test_a_replica_is_promoted(watched: SentinelSet) -> None:
    """Q39, Q40: the old primary is gone; the next calls go to the new one, the state is untouched."""
    bench, grant = await half_way(watched.url)
    await watched.kill_primary()
    await go_on(bench, grant)
    await bench.store.close()


async def test_the_old_primary_lives_on_as_a_replica(watched: SentinelSet) -> None:
    """Q39: it answers READONLY, which sends the next call to the new one."""
    bench, grant = await half_way(watched.url)
    waiting = asyncio.create_task(bench.store.wait_for_work(bench.queue, 10))
    await asyncio.sleep(0.2)
    await watched.failover()
    await go_on(bench, grant)
    await asyncio.wait_for(asyncio.gather(waiting, return_exceptions=True), 15)
    assert await persist(lambda: bench.store.wait_for_work(bench.queue, 1)) in (True, False)
    await bench.store.close()


async def test_a_primary_of_a_cluster_dies(cluster: ClusterOfThree) -> None:
    """Q18, Q39, Q40."""
    bench, grant = await half_way(cluster.url)
    await asyncio.sleep(0.2)  # for its replica, which nothing here waits for
    await cluster.kill_owner(key_slot(bench.key("cfg").encode()))
    assert await persist(lambda: bench.send(grant)) == [True]
    await go_on(bench, grant)
    await bench.store.close()


@pytest.mark.parametrize("share", ["none", "some", "all"])
async def test_a_slot_moves(three: ClusterOfThree, share: str) -> None:
    """TRYAGAIN, ASK: while keys are on two nodes nothing is done, and above all no half of it; then
    all goes on at the new one."""
    bench, grant = await half_way(three.url)
    slot = key_slot(bench.key("cfg").encode())
    source, target = await three.begin_move(slot)
    most = {"none": 0, "some": 5, "all": 1000}[share]
    if most:
        await three.move_keys(slot, source, target, most=most)
    calls: list[Callable[[], Awaitable[Any]]] = [
        bench.enqueue,
        bench.claim,
        lambda: bench.send(grant),
        lambda: bench.settle(grant, usage=Usage(1, 1)),
        bench.states,
        lambda: bench.store.cancel(grant.id),
    ]
    for call in calls:
        with pytest.raises(StoreUnavailable):
            await call()
    await three.end_move(slot, source, target)
    await go_on(bench, grant)
    await bench.store.close()


async def test_budgets_on_all_nodes_in_one_look(three: ClusterOfThree) -> None:
    """Q18: the operator's look at many budgets reaches each on its own node."""
    store = await connect(three.url)
    names = [f"default/n{n}" for n in range(12)]
    for name in names:
        bench = StoreBench(store, name)
        bench.budget, bench.config = (
            type(bench.budget)(name, bench.budget.limits),
            type(bench.config)(name, name, bench.config.provider),
        )
        await bench.configure()
        await bench.enqueue()
    owners = {(await three.owner(key_slot(f"{{q:{name}}}:cfg".encode()))).port for name in names}
    assert len(owners) == 3
    found = await store.snapshots(dict.fromkeys(names, 0.0))
    assert [each.queues[0].enqueued for each in found.values()] == [1] * 12  # type: ignore[union-attr]
    away = await three.owner(key_slot(b"{q:default/n0}:cfg"))
    loop = asyncio.get_running_loop()
    begun = loop.time()
    away.process.send_signal(signal.SIGSTOP)
    found = await store.snapshots(dict.fromkeys(names, 0.0))
    away.process.send_signal(signal.SIGCONT)
    assert loop.time() - begun < 15, "each budget of the node that hangs was waited for"
    kinds = {name: isinstance(each, StoreUnavailable) for name, each in found.items()}
    assert kinds["default/n0"]
    assert not all(kinds.values())
    await store.close()


async def test_a_url_of_another_topology(three: ClusterOfThree, watched: SentinelSet) -> None:
    node, plain = three.servers[0].url, watched.servers[0]
    store = RedisStore(node)
    names = [f"default/n{n}" for n in range(9)]  # some of these live on other nodes
    found = (await store.snapshots(dict.fromkeys(names, 0.0))).values()
    wrong = [each for each in found if isinstance(each, StoreMisconfigured)]
    assert wrong
    assert all("redis+cluster://" in str(each) for each in wrong)
    await store.close()
    with pytest.raises(StoreMisconfigured, match="no cluster"):
        await connect(f"redis+cluster://127.0.0.1:{plain.port}")
    with pytest.raises(StoreUnavailable, match="No master found"):
        await connect(watched.url.replace("/llmq/", "/other/"))
