"""Batches: one at a time, none forgotten, one bad item holds up no other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from llmqueue.errors import StoreMisconfigured, StoreUnavailable
from llmqueue_worker.backoff import Backoff
from llmqueue_worker.batching import Batcher


class Server:
    """Answers n with 10 n; fails as told; counts what runs at once."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.outage: list[Exception] = []
        self.poison: int | None = None
        self.running = 0
        self.most_running = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def run(self, items: Sequence[int]) -> list[int]:
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        self.batches.append(list(items))
        try:
            await self.gate.wait()
            if self.outage:
                raise self.outage.pop(0)
            if self.poison in items:
                raise StoreMisconfigured("a value no script can read")
            return [10 * item for item in items]
        finally:
            self.running -= 1


class Bench:
    def __init__(self) -> None:
        self.server = Server()
        self.slept: list[float] = []
        self.gives_up = False
        self.batcher = Batcher[int, int](
            "test", self.server.run, patience=self._patience, most=4, sleep=self._sleep
        )

    def _patience(self, _item: int, error: Exception) -> Exception | None:
        return error if self.gives_up else None

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench()
    yield bench
    await bench.batcher.close()


async def test_what_arrives_in_one_turn_goes_together_in_order(bench: Bench) -> None:
    replies = await asyncio.gather(*(bench.batcher.submit(n) for n in range(3)))
    assert replies == [0, 10, 20]
    assert bench.server.batches == [[0, 1, 2]]


async def test_what_arrives_meanwhile_goes_in_the_next_one(bench: Bench) -> None:
    bench.server.gate.clear()
    first = bench.batcher.submit(1)
    await asyncio.sleep(0)
    rest = [bench.batcher.submit(n) for n in range(2, 9)]
    await asyncio.sleep(0)
    bench.server.gate.set()
    assert await asyncio.gather(first, *rest) == [10 * n for n in range(1, 9)]
    assert bench.server.batches == [[1], [2, 3, 4, 5], [6, 7, 8]]
    assert bench.server.most_running == 1


async def test_repeated_until_the_store_answers_in_the_same_order(bench: Bench) -> None:
    bench.server.outage = [StoreUnavailable("gone")] * 5
    assert await asyncio.gather(*(bench.batcher.submit(n) for n in (1, 2))) == [10, 20]
    assert bench.server.batches == [[1, 2]] * 6
    assert len(bench.slept) == 5
    assert bench.slept[4] > bench.slept[0]


async def test_a_bad_item_holds_up_no_other(bench: Bench) -> None:
    bench.server.poison = 2
    futures = {n: bench.batcher.submit(n) for n in (1, 2, 3)}
    assert await asyncio.gather(futures[1], futures[3]) == [10, 30]
    assert not futures[2].done()
    bench.server.poison = None
    assert await futures[2] == 20


async def test_patience_may_end(bench: Bench) -> None:
    bench.server.outage = [StoreUnavailable("gone")]
    bench.gives_up = True
    with pytest.raises(StoreUnavailable):
        await bench.batcher.submit(1)
    assert bench.slept == []
    assert await bench.batcher.submit(2) == 20


async def test_a_queued_item_can_be_taken_back(bench: Bench) -> None:
    bench.server.gate.clear()
    first = bench.batcher.submit(1)
    await asyncio.sleep(0)
    second, third = bench.batcher.submit(2), bench.batcher.submit(3)
    second.cancel()
    bench.server.gate.set()
    assert await asyncio.gather(first, third) == [10, 30]
    assert bench.server.batches == [[1], [3]]


def test_delays_double_to_a_bound_and_start_again() -> None:
    backoff = Backoff(first=0.1, most=2.0)
    delays = [backoff.next() for _ in range(40)]
    for n, delay in enumerate(delays):
        longest = min(2.0, 0.1 * 2**n)
        assert longest / 2 <= delay <= longest
    assert len(set(delays[10:])) > 1
    backoff.reset()
    assert backoff.next() <= 0.1
