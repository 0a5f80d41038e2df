"""A store on a real server with a clock that tests can move."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from llmqueue.config import BudgetConfig, Limit, QueueConfig
from llmqueue.errors import StoreUnavailable
from llmqueue.job import Charge, Enqueued, NewJob
from llmqueue.outcome import Outcome, Usage
from llmqueue.states import LimitUnit, OutcomeClass, ProviderType
from llmqueue.store import RedisStore, keys
from llmqueue.store.port import (
    Beat,
    BeatReply,
    ClaimReply,
    ClaimRequest,
    Grant,
    Held,
    Settlement,
    SettleReply,
)

QUEUE = "default/q"
RPM_600 = (Limit(LimitUnit.REQUESTS, 600),)
LEASE_SECONDS = 10.0
UNLIMITED = (Limit(LimitUnit.REQUESTS, 10**9),)


@dataclass
class StoreBench:
    """One budget with one queue, and short words for what tests do all the time."""

    store: RedisStore
    queue: str = QUEUE
    budget: BudgetConfig = field(default_factory=lambda: BudgetConfig(QUEUE, UNLIMITED))
    config: QueueConfig = field(
        default_factory=lambda: QueueConfig(QUEUE, QUEUE, ProviderType.OPENAI)
    )
    code: str = ""

    @property
    def redis(self) -> Any:
        return self.store._redis.client

    def key(self, *parts: str) -> str:
        return keys.prefix(self.budget.budget) + ":".join(parts)

    async def configure(
        self, *, budget: dict[str, Any] | None = None, queue: dict[str, Any] | None = None
    ) -> None:
        self.budget = replace(self.budget, **(budget or {}))
        self.config = replace(self.config, **(queue or {}))
        await self.store.configure(self.budget, [self.config])
        self.code = (await self.store.registry())[self.queue].code

    def new(self, *, tokens: tuple[int, int] = (10, 100), **fields: Any) -> NewJob:
        """A job that is not enqueued yet; `key` derives its id as an idempotency key does."""
        payload = fields.pop("payload", b'{"x":1}')
        key = fields.pop("key", None)
        worst = fields.pop("worst_nano_usd", 1_000_000)
        job_id = keys.new_job_id(self.code)
        if key is not None:
            job_id = keys.keyed_job_id(
                self.code, queue=self.queue, tenant=fields.get("tenant", ""), key=key
            )
            fields["fingerprint"] = keys.fingerprint(payload)
        return NewJob(job_id, self.queue, payload, Charge(*tokens, worst), **fields)

    async def enqueue(self, count: int = 1, **fields: Any) -> list[str]:
        jobs = [self.new(**fields) for _ in range(count)]
        return [done.id for done in await self.store.enqueue(jobs)]

    async def enqueue_one(self, **fields: Any) -> Enqueued:
        return (await self.store.enqueue([self.new(**fields)]))[0]

    async def claim(
        self, slots: int = 1, *, worker: str = "w:1", credential: str = "", clean: bool = True
    ) -> ClaimReply:
        return await self.store.claim(
            ClaimRequest(self.queue, worker, slots, credential=credential, clean=clean)
        )

    async def take(self, *, credential: str = "", worker: str = "w:1") -> Grant:
        """Claim exactly one job."""
        reply = await self.claim(credential=credential, worker=worker)
        assert reply.grants, f"nothing granted: {reply.reason} {reply.wait_seconds}"
        return reply.grants[0]

    async def send(self, *grants: Grant, credential: str = "") -> list[bool]:
        pairs = [(grant.id, grant.fence) for grant in grants]
        replies = await self.store.mark_sent(self.queue, pairs, credential=credential)
        return [reply.ok for reply in replies]

    async def settle(
        self,
        grant: Grant,
        kind: OutcomeClass = OutcomeClass.SUCCESS,
        *,
        credential: str = "",
        jitter: float = 0.0,
        call: int = 1,
        **outcome: Any,
    ) -> SettleReply:
        if kind is OutcomeClass.SUCCESS:
            outcome.setdefault("usage", Usage(10, 20))
            outcome.setdefault("result", b'{"ok":true}')
        item = Settlement(
            grant.id,
            grant.fence,
            Outcome(kind, **outcome),
            credential=credential,
            entry={"job": grant.id, "call": call} if outcome.get("sent", True) else None,
            cost_nano_usd=1000,
            jitter=jitter,
        )
        return (await self.store.settle(self.queue, [item]))[0]

    async def run_one(self, kind: OutcomeClass = OutcomeClass.SUCCESS, **outcome: Any) -> Grant:
        """Claim, send and settle one job."""
        credential = outcome.get("credential", "")
        grant = await self.take(credential=credential)
        assert await self.send(grant, credential=credential) == [True]
        await self.settle(grant, kind, **outcome)
        return grant

    async def advance(self, seconds: float, *, outage: bool = False) -> None:
        """Move the store's logical clock on. Without `outage` it looks as if scripts had run
        all along."""
        run = self.key("run")
        await self.redis.hincrby(run, "off", round(seconds * 1000))
        if not outage:
            await self.redis.hincrby(run, "last", round(seconds * 1000))

    async def warm(self) -> None:
        """Fill the pacer, which starts empty."""
        await self.claim(0)
        await self.advance(2)

    async def reconnect(self) -> None:
        """After a restart of the server: its old connections are found broken, one error each."""
        await self.redis.connection_pool.disconnect()
        while True:
            try:
                await self.store.registry()
            except StoreUnavailable:
                await asyncio.sleep(0.02)
            else:
                return

    async def state(self, job_id: str) -> str:
        return str((await self.store.job(job_id)).state)

    async def now_ms(self) -> int:
        """The logical time of the last script."""
        return int(await self.redis.hget(self.key("run"), "last") or 0)

    async def server_ms(self) -> int:
        """The logical time of now."""
        seconds, micros = await self.redis.time()
        return int(
            seconds * 1000
            + micros // 1000
            + int(await self.redis.hget(self.key("run"), "off") or 0)
        )

    async def states(self) -> dict[str, int]:
        return {
            name: count
            for name, count in (await self.store.queue_status(self.queue))["states"].items()
            if count
        }


async def drain_queue(bench: StoreBench, *, slots: int = 32) -> Sequence[str]:
    """Run every job that is ready now; returns their ids in the order of their grants."""
    done: list[str] = []
    while True:
        reply = await bench.claim(slots)
        if not reply.grants and reply.wait_seconds > 0:
            return done
        for grant in reply.grants:
            await bench.send(grant)
            await bench.settle(grant)
            done.append(grant.id)


async def beat(bench: StoreBench, worker: str = "w:1", **leases: str) -> BeatReply:
    return await bench.store.beat(Beat(bench.queue, worker, 8, leases))


def known_of(grant: Grant, *, sent_seconds: float | None = None) -> Held:
    """What a worker says of a lease of its own."""
    return Held(grant.input_tokens, grant.output_tokens, sent_seconds)


async def assert_leases(
    bench: StoreBench, *grants: Grant, worker: str = "w:1", sent_seconds: float | None = None
) -> BeatReply:
    """A heartbeat of a worker that knows what it holds."""
    leases = {grant.id: grant.fence for grant in grants}
    known = {grant.id: known_of(grant, sent_seconds=sent_seconds) for grant in grants}
    return await bench.store.beat(Beat(bench.queue, worker, 8, leases, held=known))


async def after_lease(bench: StoreBench) -> None:
    """Let a lease run out while somebody keeps the store's clock running."""
    for _ in range(4):
        await bench.advance(LEASE_SECONDS / 3)
        await bench.store.snapshot(bench.queue, horizon_seconds=0)
