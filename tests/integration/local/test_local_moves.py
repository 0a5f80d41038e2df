"""A queue that joins a shared budget while `up` has it, on a real store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from llmqueue.errors import InvalidResource
from llmqueue.store import RedisStore
from llmqueue_cli.local.deployment import LocalGroup, LocalQueue
from llmqueue_cli.local.moves import refuse_moves
from llmqueue_cli.local.processes import WorkerKind
from llmqueue_operator.planning import ScalingSpec
from support.storebench import QUEUE, StoreBench
from support.valkey import ValkeyServer

SHARED = "default/~shared"


@pytest.fixture
async def bench() -> AsyncIterator[StoreBench]:
    async with ValkeyServer() as server:
        store = RedisStore(server.url)
        bench = StoreBench(store)
        await bench.configure()
        yield bench
        await store.close()


def group(bench: StoreBench, budget: str) -> LocalGroup:
    config = replace(bench.config, budget=budget)
    queue = LocalQueue(config, ScalingSpec(), WorkerKind(QUEUE, {}, 1.0))
    return LocalGroup(replace(bench.budget, budget=budget), (queue,))


async def test_jobs_are_not_left_behind(bench: StoreBench) -> None:
    await bench.enqueue(3)
    await refuse_moves(bench.store, [group(bench, QUEUE)])
    with pytest.raises(InvalidResource, match="while 3 jobs are not finished"):
        await refuse_moves(bench.store, [group(bench, SHARED)])


async def test_an_empty_queue_may_move(bench: StoreBench) -> None:
    await bench.enqueue()
    await bench.run_one()
    await refuse_moves(bench.store, [group(bench, SHARED)])
