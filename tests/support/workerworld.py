"""A real server, a simulated provider, and real worker processes between them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from llmqueue.errors import StoreUnavailable
from llmqueue.store import RedisStore
from support.fakeprovider import FakeProviderProcess
from support.storebench import StoreBench
from support.topologies import ClusterOfThree, SentinelSet
from support.valkey import ValkeyServer
from support.workerprocess import WorkerProcess, eventually

LEASE_SECONDS = 2.0


class World:
    """One queue with a lease of 2 s, and whoever serves it."""

    def __init__(
        self, server: Any, fake: FakeProviderProcess, bench: StoreBench, folder: Path
    ) -> None:
        self.server, self.fake, self.bench, self.folder = server, fake, bench, folder

    def worker(self, **settings: Any) -> WorkerProcess:
        """A worker that is not started yet."""
        defaults = {"redis_url": self.server.url, "base_url": f"{self.fake.url}/v1"}
        return WorkerProcess(self.folder, **(defaults | settings))

    async def enqueue(self, *seconds: float, directive: str = "", **fields: Any) -> list[str]:
        """One job for each number: how long the provider takes for it."""
        ids: list[str] = []
        stream = fields.pop("stream", False)
        for latency in seconds:
            text = f"[[sim:latency={latency} {directive}]]"
            payload = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": text}]}
            payload |= {"stream": True} if stream else {}
            ids += await self.bench.enqueue(
                payload=json.dumps(payload).encode(), model="gpt-4o-mini", **fields
            )
        return ids

    async def until(self, state: str, count: int = 1, *, seconds: float = 30.0) -> None:
        """Wait until exactly so many jobs are in this state."""

        async def reached() -> bool:
            try:
                return (await self.bench.states()).get(state, 0) == count
            except StoreUnavailable:  # a connection that a restart of the server has cut
                return False

        await eventually(reached, seconds=seconds, what=f"{count} jobs {state}")

    async def at_least(self, state: str, count: int, *, seconds: float = 30.0) -> None:
        """Wait until so many jobs or more are in this state."""

        async def reached() -> bool:
            return (await self.bench.states()).get(state, 0) >= count

        await eventually(reached, seconds=seconds, what=f"{count} jobs {state} or more")

    async def grants(self) -> int:
        """How often jobs were handed out so far."""
        snapshot = await self.bench.store.snapshot(self.bench.budget.budget, horizon_seconds=0)
        return snapshot.queues[0].grants

    async def slots_of(self, uid: str) -> int:
        """How many jobs a worker can hold."""
        snapshot = await self.bench.store.snapshot(self.bench.budget.budget, horizon_seconds=0)
        return next(view.slots for view in snapshot.workers if view.worker.startswith(uid))

    async def ledger(self) -> list[dict[str, Any]]:
        entries = await self.bench.redis.xrange(self.bench.key("ledger"))
        return [json.loads(fields[b"e"]) for _, fields in entries]

    async def ledger_jobs(self) -> list[str]:
        """The job of each ledger entry, sorted."""
        return sorted(entry["job"] for entry in await self.ledger())

    async def runs(self, *ids: str) -> list[tuple[str, int]]:
        """State and number of recorded attempts of each job."""
        views = [await self.bench.store.job(each) for each in ids]
        return [(str(view.state), len(view.attempts)) for view in views]


@asynccontextmanager
async def running_world(
    folder: Path,
    *,
    server: ValkeyServer | SentinelSet | ClusterOfThree | None = None,
    **queue: Any,
) -> AsyncIterator[World]:
    """All of it, but no worker yet; `queue` are fields of its configuration."""
    async with server or ValkeyServer() as running, FakeProviderProcess() as fake:
        store = RedisStore(running.url)
        bench = StoreBench(store)
        await bench.configure(budget={"lease_seconds": LEASE_SECONDS}, queue=queue)
        try:
            yield World(running, fake, bench, folder)
        finally:
            await store.close()
