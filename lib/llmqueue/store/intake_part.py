"""The producers' and readers' half of the store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

from llmqueue.config import RegistryEntry
from llmqueue.errors import IdempotencyConflict, QueueFull, UnknownJob, UnknownQueue
from llmqueue.job import Enqueued, JobView, NewJob, band_of
from llmqueue.states import TERMINAL_STATES, JobState
from llmqueue.store import codec, keys, views
from llmqueue.store.batch_part import batch_refusal
from llmqueue.store.connection import translated
from llmqueue.store.executor import Executor
from llmqueue.store.port import TenantView

_TENANTS_LOOKED_AT = 1000


class IntakePart:
    """See `IntakeStore` in port.py."""

    _redis: Executor

    async def registry(self) -> Mapping[str, RegistryEntry]:
        return await self._redis.entries(fresh=True)

    async def entry(self, queue: str) -> RegistryEntry:
        with translated():
            raw = await self._redis.client.hget(keys.REGISTRY, f"q:{queue}")
        if raw is None:
            self._redis.drop(queue)
            raise UnknownQueue(f"queue {queue!r} is not configured in the store")
        found = codec.entry_from_json(raw)
        self._redis.remember([found])
        return found

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        if not jobs:
            return []
        queue = jobs[0].queue
        entry = await self._redis.entry(queue)
        if any(job.id[: keys.CODE_LENGTH] != entry.code for job in jobs):
            raise UnknownQueue(
                f"queue {queue!r} was made anew meanwhile: ids that were made before lead to no"
                " job of it; nothing of this was stored now, enqueue it again"
            )
        budget = entry.config.budget
        args: list[str | bytes] = [queue]
        for job in jobs:
            args += [codec.new_job_json(job), job.payload]
        head, *answers = await self._redis.run("enqueue", budget, *args)
        if head == b"unknown":
            raise UnknownQueue(f"queue {queue!r} is not configured in the store")
        if head == b"full":
            raise await self._full(queue, answers)
        if head == b"conflict":
            raise IdempotencyConflict(
                f"the idempotency key of job {answers[0].decode()} belongs to other bytes:"
                " use a new key for a new request"
            )
        if head != b"ok":
            raise batch_refusal(jobs[0].batch, head, answers)
        return [
            Enqueued(job.id, JobState(state.decode()), bool(duplicate))
            for job, (state, duplicate) in zip(jobs, answers, strict=True)
        ]

    async def _full(self, queue: str, answers: list[Any]) -> QueueFull:
        used, bound, what = answers
        plan = await self._redis.plan(queue)
        return QueueFull(
            f"queue {queue!r} is full: {used} of {bound} {what.decode()}; try again later",
            estimated_wait_seconds=views.number(plan.get("eta_seconds")),
        )

    async def job(self, job_id: str) -> JobView:
        found = await self._redis.run("read", await self._redis.budget_of_job(job_id), job_id)
        if found is None:
            raise UnknownJob(f"no job {job_id!r}, or its retention is over")
        flat, data, attempts, due, progress = found
        fields = dict(zip(flat[::2], flat[1::2], strict=True))
        due_ms = None if due is None else float(due)
        return views.job_view(job_id, fields, data, attempts, due_ms=due_ms, progress=progress)

    async def jobs(self, queue: str, state: JobState, *, limit: int = 50) -> list[JobView]:
        start = keys.prefix(await self._redis.budget(queue))
        with translated():
            ids = await views.ids_in_state(self._redis.client, start, queue, state, limit)
            pipe = self._redis.client.pipeline(transaction=False)
            for job_id in ids:
                pipe.hgetall(f"{start}j:{job_id}")
                pipe.lrange(f"{start}t:{job_id}", 0, -1)
            rows: list[Any] = await pipe.execute() if ids else []
        found = [
            views.job_view(job_id, rows[2 * n], None, rows[2 * n + 1])
            for n, job_id in enumerate(ids)
            if rows[2 * n]
        ]
        return [job for job in found if job.state is state]

    async def cancel(self, job_id: str) -> JobState:
        letter = await self._redis.run("cancel", await self._redis.budget_of_job(job_id), job_id)
        if not letter:
            raise UnknownJob(f"no job {job_id!r}, or its retention is over")
        return codec.STATES[letter.decode()]

    async def tenants(self, queue: str, *, limit: int = 20) -> list[TenantView]:
        raw = await self._redis.run(
            "tenants", await self._redis.budget(queue), queue, _TENANTS_LOOKED_AT
        )
        rows = sorted(json.loads(raw), key=lambda row: (-row["waiting"], row["tenant"]))
        return [
            TenantView(
                tenant=row["tenant"],
                waiting=int(row["waiting"]),
                in_flight=int(row["in_flight"]),
                parked_seconds=max(0.0, row["parked_ms"] / 1000),
            )
            for row in rows[:limit]
        ]

    async def queue_status(self, queue: str) -> dict[str, Any]:
        budget = await self._redis.budget(queue)
        raw, plan = await asyncio.gather(
            self._redis.run("snapshot", budget, 0), self._redis.plan(queue)
        )
        return views.queue_status(queue, json.loads(raw), plan)

    async def explain(self, job_id: str) -> dict[str, Any]:
        job = await self.job(job_id)
        budget = await self._redis.budget_of_job(job_id)
        raw, plan = await asyncio.gather(
            self._redis.run("snapshot", budget, 0), self._redis.plan(job.queue)
        )
        ahead, parked = 0, False
        if job.state not in TERMINAL_STATES:
            ahead = await self._ahead(budget, job)
            parked = await self._parked(budget, job)
        return views.explain(job, json.loads(raw), plan, ahead, parked=parked)

    async def _parked(self, budget: str, job: JobView) -> bool:
        """Whether its tenant may not go on now."""
        member = f"{band_of(job.priority)} {job.tenant}"
        with translated():
            score = await self._redis.client.zscore(
                f"{keys.prefix(budget)}parked:{job.queue}", member
            )
        return score is not None

    async def _ahead(self, budget: str, job: JobView) -> int:
        """How many jobs of its own lane go before it, by enqueue number."""
        start = keys.prefix(budget)
        band = band_of(job.priority)
        lane = f"{job.tenant}\x1f{job.feature}"
        with translated():
            client = self._redis.client
            head = await client.lindex(f"{start}ready:{job.queue}:{band}:{lane}", 0)
            if head is None:
                return 0
            mine: bytes | None = await client.hget(f"{start}j:{job.id}", "n")
            first: bytes | None = await client.hget(f"{start}j:{head.decode()}", "n")
        return max(0, int(mine or 0) - int(first or 0))

    async def set_suspended(self, queue: str, suspended: bool) -> None:
        await self._control(queue, "suspend" if suspended else "unsuspend")

    async def resume(self, queue: str) -> int:
        return await self._control(queue, "resume")

    async def _control(self, queue: str, verb: str) -> int:
        return int(await self._redis.run("control", await self._redis.budget(queue), queue, verb))
