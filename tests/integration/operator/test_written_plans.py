"""The plan as command line and gateway read it from a real store."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from llmqueue.store import RedisStore
from llmqueue_operator.planning import BoundBy, QueuePlan
from llmqueue_operator.reconciler import Parts, Reconciler
from llmqueue_operator.world import World
from support.storebench import StoreBench

PLAN = QueuePlan(
    queue="default/q",
    wish=4,
    target=4,
    replicas=4,
    mark=(),
    unmark=(),
    remove=(),
    bound_by=BoundBy.BACKLOG,
    reason="Steady",
    effective_rpm=60,
    eta_seconds=12.0,
    slot_seconds=8,
)


class Bench:
    def __init__(self, store: RedisStore) -> None:
        self.now, self.store = 1000.0, store
        unused: Any = None
        self.reconciler = Reconciler(
            Parts(
                settings=unused,
                cluster=unused,
                world=World(),
                connections=unused,
                lookout=unused,
                recorder=unused,
                applier=unused,
                metrics=unused,
                check=lambda: None,
                clock=lambda: self.now,
            )
        )

    async def write(self, plan: QueuePlan) -> dict[str, str]:
        """What is read afterwards."""
        await self.reconciler._write_plan(self.store, plan)
        return dict(await self.store.read_plan(plan.queue))


@pytest.fixture
async def bench(store: RedisStore) -> Bench:
    await StoreBench(store).configure()
    return Bench(store)


async def test_decisions_at_once_numbers_every_few_seconds(bench: Bench) -> None:
    first = await bench.write(PLAN)
    assert (first["desired"], first["bound_by"]) == ("4", "Backlog")
    assert float(first["eta_seconds"]) == 12
    bench.now += 1
    assert await bench.write(replace(PLAN, eta_seconds=11.0)) == first, "a number alone"
    assert (await bench.write(replace(PLAN, target=5, replicas=5)))["desired"] == "5"
    bench.now += 4
    later = await bench.write(replace(PLAN, target=5, replicas=5, eta_seconds=3.0))
    assert float(later["eta_seconds"]) == 12, "five seconds since the last write, not since 1000"
    bench.now += 2
    later = await bench.write(replace(PLAN, target=5, replicas=5, eta_seconds=3.0))
    assert float(later["eta_seconds"]) == 3


async def test_memory_used_up(bench: Bench) -> None:
    """Q42: workers that drain a full queue are what frees memory: the tick must not end here."""
    await bench.write(PLAN)
    redis = bench.store._redis.client
    await redis.config_set("maxmemory", 1)
    assert (await bench.write(replace(PLAN, target=9)))["desired"] == "4"
    await redis.config_set("maxmemory", 0)
    assert (await bench.write(replace(PLAN, target=9)))["desired"] == "9", "written when it can be"
