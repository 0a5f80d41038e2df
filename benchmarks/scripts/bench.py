"""One budget with one queue on a server of its own, and a clock that can be moved on."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager

from benchmarks.scripts.server_time import ServerTime
from benchmarks.server import Server
from llmqueue.client import CHUNK_JOBS
from llmqueue.config import BudgetConfig, Limit, QueueConfig
from llmqueue.job import Charge, NewJob
from llmqueue.outcome import Outcome, Usage
from llmqueue.states import LimitUnit, OutcomeClass, ProviderType
from llmqueue.store import RedisStore, connect, keys
from llmqueue.store.port import Beat, ClaimReply, ClaimRequest, Grant, Settlement

QUEUE = "bench/jobs"
WORKER = "bench:0"
PAYLOAD = (
    b'{"model":"gpt-4.1-mini","max_tokens":16,"messages":[{"role":"user","content":"Say hello."}]}'
)
_NEVER_REACHED = 1_000_000_000
# Rewriting the append-only file forks the server: its page faults would be booked to scripts.
_OPTIONS = {"auto-aof-rewrite-percentage": "0"}


class Bench:
    """What the scenarios do with the store, in few words."""

    def __init__(self, store: RedisStore, clock: ServerTime, code: str) -> None:
        self.store = store
        self.clock = clock
        self._code = code

    def jobs(
        self,
        count: int,
        *,
        delay_seconds: float = 0.0,
        keyed: bool = False,
        tenants: Iterable[str] = (),
    ) -> list[NewJob]:
        """New jobs with PAYLOAD; `keyed`: under idempotency keys; `tenants`: whose, one by one."""
        digest = keys.fingerprint(PAYLOAD) if keyed else None
        owners = itertools.chain(tenants, itertools.repeat(""))
        return [
            NewJob(
                keys.new_job_id(self._code),
                QUEUE,
                PAYLOAD,
                Charge(30, 16, 40_000),
                tenant=tenant,
                model="gpt-4.1-mini",
                fingerprint=digest,
                delay_seconds=delay_seconds,
            )
            for _, tenant in zip(range(count), owners, strict=False)
        ]

    async def fill(
        self,
        count: int,
        *,
        delay_seconds: float = 0.0,
        keyed: bool = False,
        tenants: Iterable[str] = (),
    ) -> list[str]:
        """Enqueue `count` jobs in chunks; returns their ids."""
        ids: list[str] = []
        owners = iter(tenants)
        for start in range(0, count, CHUNK_JOBS):
            chunk = self.jobs(
                min(CHUNK_JOBS, count - start),
                delay_seconds=delay_seconds,
                keyed=keyed,
                tenants=owners,
            )
            with self.clock("enqueue"):
                await self.store.enqueue(chunk)
            ids += [job.id for job in chunk]
        return ids

    async def claim(self, slots: int, *, worker: str = WORKER) -> ClaimReply:
        with self.clock("claim"):
            return await self.store.claim(ClaimRequest(QUEUE, worker, slots))

    async def beat(self, grants: Sequence[Grant], *, worker: str = WORKER) -> None:
        leases = {grant.id: grant.fence for grant in grants}
        with self.clock("heartbeat"):
            await self.store.beat(Beat(QUEUE, worker, max(1, len(leases)), leases))

    async def send(self, grants: Sequence[Grant]) -> None:
        pairs = [(grant.id, grant.fence) for grant in grants]
        with self.clock("sent"):
            replies = await self.store.mark_sent(QUEUE, pairs, credential="")
        assert all(reply.ok for reply in replies), f"refused: {replies}"

    async def settle(self, grants: Sequence[Grant]) -> None:
        outcome = Outcome(
            OutcomeClass.SUCCESS, status=200, usage=Usage(30, 8), result=b'{"ok":true}'
        )
        items = [
            Settlement(
                grant.id,
                grant.fence,
                outcome,
                entry={"job": grant.id, "call": 1, "model": grant.model, "status": 200},
                cost_nano_usd=20_000,
            )
            for grant in grants
        ]
        with self.clock("settle"):
            replies = await self.store.settle(QUEUE, items)
        assert all(reply.verdict == "settled" for reply in replies), f"not settled: {replies}"

    async def release(self, grants: Sequence[Grant]) -> None:
        with self.clock("release"):
            await self.store.release(QUEUE, [(grant.id, grant.fence) for grant in grants])

    async def cancel(self, job_id: str) -> None:
        with self.clock("cancel"):
            await self.store.cancel(job_id)

    async def snapshot(self) -> bool:
        """True: housekeeping is not done yet."""
        with self.clock("snapshot"):
            return (await self.store.snapshot(QUEUE, horizon_seconds=60)).again

    async def advance(self, seconds: float) -> None:
        """Move the store's logical clock on, as if scripts had run all along."""
        run = f"{keys.prefix(QUEUE)}run"
        redis = self.store._redis.client
        for field in ("off", "last"):
            await redis.hincrby(run, field, round(seconds * 1000))


@asynccontextmanager
async def bench(*, lease_seconds: float = 3600.0) -> AsyncIterator[Bench]:
    """A fresh server with every limit set and none that binds.

    Leases are long: they run out when a scenario moves the clock, not while it is filling.
    """
    with Server(_OPTIONS) as server:
        store = await connect(server.url)
        clock = ServerTime(server.url, server.pid)
        try:
            await store.configure(
                BudgetConfig(
                    QUEUE,
                    tuple(Limit(unit, _NEVER_REACHED) for unit in LimitUnit),
                    max_in_flight=1_000_000,
                    lease_seconds=lease_seconds,
                ),
                [QueueConfig(QUEUE, QUEUE, ProviderType.OPENAI, max_jobs=10_000_000)],
            )
            code = (await store.registry())[QUEUE].code
            yield Bench(store, clock, code)
        finally:
            clock.close()
            await store.close()
