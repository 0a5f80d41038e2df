"""The planner's half of the store: configuration, snapshots, drain marks."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from typing import Any

from llmqueue.config import BudgetConfig, QueueConfig, RegistryEntry
from llmqueue.errors import InvalidResource, StoreError
from llmqueue.states import JobState
from llmqueue.store import codec, durability, keys
from llmqueue.store.connection import translated
from llmqueue.store.executor import Executor
from llmqueue.store.meters import meters_of
from llmqueue.store.snapshots import BudgetSnapshot, LimitView, PauseView, QueueSnapshot, WorkerView


def _queue_snapshot(raw: Mapping[str, Any]) -> QueueSnapshot:
    states: dict[JobState, int] = {
        state: int(raw["states"][letter]) for letter, state in codec.STATES.items()
    }
    settle_ms = raw.get("settle_ms")
    return QueueSnapshot(
        queue=raw["queue"],
        states=states,
        due_soon=int(raw["due"]),
        oldest_ready_seconds=raw["oldest_ms"] / 1000,
        busy_ms=int(raw["busy_ms"]),
        grants=int(raw["grants"]),
        enqueued=int(raw["enqueued"]),
        settled=int(raw["settled"]),
        last_settle_seconds=None if settle_ms is None else settle_ms / 1000,
        suspended=bool(raw["suspended"]),
        charged={unit: int(amount) for unit, amount in raw["charged"].items()},
        held_back=int(raw["held_back"]),
        ready_by_band=tuple(int(ready) for ready, _ in raw["bands"]),
        in_flight_by_band=tuple(int(held) for _, held in raw["bands"]),
        tenants_waiting=int(raw["tenants"]),
        tenants_parked=int(raw["parked"]),
        stored_bytes=int(raw["bytes"]),
        review_oldest_seconds=raw["review_ms"] / 1000 if "review_ms" in raw else None,
        estimate_ratio=raw["estimate"] / 1000 if "estimate" in raw else None,
        meters=meters_of(raw["meters"]) if "meters" in raw else None,
    )


def _worker_view(raw: Mapping[str, Any]) -> WorkerView:
    return WorkerView(
        worker=raw["worker"],
        slots=int(raw["slots"]),
        in_flight=int(raw["in_flight"]),
        longest_remaining_seconds=raw["longest_ms"] / 1000,
        age_seconds=raw["age_ms"] / 1000,
        drain_seconds=raw["drain_ms"] / 1000,
        pid=int(raw["pid"]),
        last_claim_age_seconds=raw["claim_ms"] / 1000 if raw["claim_ms"] >= 0 else None,
        credential=raw["credential"],
        queue=raw["queue"],
    )


def _pause_view(raw: Mapping[str, Any]) -> PauseView:
    return PauseView(
        credential=raw["credential"],
        kind=raw["kind"],
        message=raw["message"],
        since_seconds=raw["since_ms"] / 1000,
        next_probe_seconds=raw["next_ms"] / 1000,
        probing=bool(raw["probing"]),
    )


def _limit_view(raw: Mapping[str, Any]) -> LimitView:
    return LimitView(
        name=raw["name"],
        declared=int(raw["declared"]),
        effective=int(raw["effective"]),
        used=int(raw["used"]),
        frees_seconds=raw["frees_ms"] / 1000,
    )


def _unconfigured(budget: str) -> BudgetSnapshot:
    return BudgetSnapshot(
        budget=budget,
        epoch=None,
        queues=(),
        workers=(),
        blocked_seconds=0.0,
        rate_factor=1.0,
        breaker="closed",
        breaker_seconds=0.0,
        pauses=(),
        answers=0,
        answers_rate=0,
        answers_unknown=0,
    )


def _budget_snapshot(budget: str, answer: bytes) -> BudgetSnapshot:
    raw = json.loads(answer)
    if not raw["epoch"]:
        return _unconfigured(budget)
    return BudgetSnapshot(
        budget=budget,
        epoch=raw["epoch"],
        queues=tuple(_queue_snapshot(queue) for queue in raw["queues"]),
        workers=tuple(_worker_view(worker) for worker in raw["workers"]),
        blocked_seconds=raw["blocked_ms"] / 1000,
        rate_factor=raw["factor"],
        breaker=raw["breaker"],
        breaker_seconds=max(0.0, raw["breaker_ms"] / 1000),
        pauses=tuple(_pause_view(pause) for pause in raw["pauses"]),
        answers=int(raw["answers"]),
        answers_rate=int(raw["answers_rate"]),
        answers_unknown=int(raw["answers_unknown"]),
        limits=tuple(_limit_view(each) for each in raw["limits"]),
        again=bool(raw["again"]),
    )


class PlannerPart:
    """See `PlannerStore` in port.py."""

    _redis: Executor
    wall_clock: Callable[[], float] = staticmethod(time.time)
    """Unix seconds: tells which calendar days a configuration has to list."""

    async def configure(self, budget: BudgetConfig, queues: Sequence[QueueConfig]) -> str:
        for queue in queues:
            if queue.budget != budget.budget:
                raise InvalidResource(f"{queue.queue} is not on budget {budget.budget}")
        code = await self._code(budget.budget)
        strict = any(queue.durability == durability.STRICT for queue in queues)
        if strict:
            self._redis.expect_strict(budget.budget)
        flat = [text for queue in queues for text in (queue.queue, codec.queue_json(queue))]
        epoch, generation = await self._redis.run(
            "configure",
            budget.budget,
            codec.budget_json(budget, queues, at=self.wall_clock()),
            secrets.token_hex(8),
            *flat,
        )
        entries = [
            RegistryEntry(queue, code, budget.limits, budget.token_rule, generation)
            for queue in queues
        ]
        fields = [text for e in entries for text in (f"q:{e.config.queue}", codec.entry_json(e))]
        await self._redis.write(keys.REGISTRY, "HSET", *fields, strict=strict)
        self._redis.remember(entries)
        return str(epoch.decode())

    async def _code(self, budget: str) -> str:
        """A budget's code: found, or made once (two writers agree through HSETNX)."""
        client, name = self._redis.client, f"b:{budget}"
        with translated():
            known = await client.hget(keys.REGISTRY, name)
            while known is None:
                code = keys.new_code()
                if await client.hsetnx(keys.REGISTRY, f"c:{code}", budget):
                    await client.hsetnx(keys.REGISTRY, name, code)
                known = await client.hget(keys.REGISTRY, name)
        return str(known.decode())

    async def remove_queue(self, queue: str) -> None:
        with translated():
            await self._redis.client.hdel(keys.REGISTRY, f"q:{queue}")
        self._redis.drop(queue)

    async def snapshot(
        self, budget: str, *, horizon_seconds: float, meters: bool = False
    ) -> BudgetSnapshot:
        horizon_ms = codec.milliseconds(horizon_seconds)
        answer = await self._redis.run("snapshot", budget, horizon_ms, int(meters))
        return _budget_snapshot(budget, answer)

    async def snapshots(
        self, horizons: Mapping[str, float], *, meters: Collection[str] = ()
    ) -> dict[str, BudgetSnapshot | StoreError]:
        calls = {
            name: (codec.milliseconds(seconds), int(name in meters))
            for name, seconds in horizons.items()
        }
        answers = await self._redis.run_many("snapshot", calls)
        return {
            name: answer if isinstance(answer, StoreError) else _budget_snapshot(name, answer)
            for name, answer in answers.items()
        }

    async def mark_drain(
        self, queue: str, workers: Sequence[str], *, seconds: float
    ) -> dict[str, int]:
        return await self._drain(queue, workers, codec.milliseconds(seconds))

    async def unmark_drain(self, queue: str, workers: Sequence[str]) -> None:
        await self._drain(queue, workers, 0)

    async def _drain(self, queue: str, workers: Sequence[str], hold_ms: int) -> dict[str, int]:
        if not workers:
            return {}
        counts = await self._redis.run("drain", await self._budget(queue), queue, hold_ms, *workers)
        return dict(zip(workers, counts, strict=True))

    async def _budget(self, queue: str) -> str:
        """From the copy at hand, however old: whoever plans has written it."""
        return self._redis.known_budget(queue) or await self._redis.budget(queue)

    async def write_plan(self, queue: str, plan: Mapping[str, Any]) -> None:
        budget = await self._budget(queue)
        fields = {name: "" if value is None else str(value) for name, value in plan.items()}
        with translated():
            await self._redis.client.hset(f"{keys.prefix(budget)}plan:{queue}", mapping=fields)

    async def read_plan(self, queue: str) -> Mapping[str, str]:
        return await self._redis.plan(queue)

    async def wakeups(self) -> AsyncIterator[str]:
        """Queue ids on which work appeared; ends with StoreUnavailable when the connection does."""
        client = self._redis.subscriber()
        try:
            async with client.pubsub() as subscription:
                with translated():
                    await subscription.subscribe(keys.WAKE_CHANNEL)
                    async for message in subscription.listen():
                        if message["type"] == "message":
                            yield message["data"].decode(errors="replace")
        finally:
            await client.aclose()
