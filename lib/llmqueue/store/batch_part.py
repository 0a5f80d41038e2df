"""Batches: the producers' half of the store for jobs that are counted together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from llmqueue.batch import BatchState, BatchView, Follower, NewBatch
from llmqueue.errors import BatchConflict, LlmqueueError, UnknownBatch, UnknownJob, UnknownQueue
from llmqueue.job import NewJob
from llmqueue.store import codec, keys
from llmqueue.store.connection import translated
from llmqueue.store.executor import Executor

_FIELDS: Mapping[Follower, str] = {"then": "then", "catch": "catch", "finally": "fin"}


def _unknown(batch_id: str) -> UnknownBatch:
    return UnknownBatch(f"no batch {batch_id!r}, or its retention is over")


def batch_refusal(batch_id: str, head: bytes, answers: Sequence[bytes]) -> LlmqueueError:
    """Why enqueue.lua took no jobs for a batch."""
    if head == b"no batch":
        return _unknown(batch_id)
    if head == b"sealed":
        return BatchConflict(
            f"batch {batch_id} takes no more jobs: it is complete, or was cancelled;"
            " begin a new one for new jobs"
        )
    job_id, other = (raw.decode() for raw in answers)
    where = f"in batch {other}: go on with that one" if other else "outside of any batch"
    return BatchConflict(
        f"job {job_id} was enqueued before {where}, or give it another idempotency key;"
        f" batch {batch_id} can't count it"
    )


def _view(batch_id: str, raw: Mapping[bytes, bytes]) -> BatchView:
    fields = {name.decode(): value.decode() for name, value in raw.items()}
    allowed = int(fields["al"]) if fields["al"] else None
    failed, ended = int(fields.get("bad", 0)), fields.get("E")
    state: BatchState = "running" if fields.get("se") else "open"
    if ended:
        state = "succeeded" if allowed is None or failed <= allowed else "failed"
    return BatchView(
        id=batch_id,
        queue=fields["q"],
        name=fields["nm"],
        state=state,
        total=int(fields.get("total", 0)),
        pending=int(fields.get("pend", 0)),
        succeeded=int(fields.get("ok", 0)),
        failed=failed,
        allowed_failures=allowed,
        sealed="se" in fields,
        cancelled="z" in fields,
        created_at=int(fields["c"]) / 1000,
        finished_at=int(ended) / 1000 if ended else None,
    )


def _follower_json(job: NewJob) -> str:
    return codec.dumps({"m": codec.new_job_json(job), "p": job.payload.decode()})


class BatchPart:
    """See `BatchStore` in port.py."""

    _redis: Executor

    async def open_batch(self, batch: NewBatch) -> None:
        budget = await self._redis.budget(batch.queue)
        allowed = "" if batch.allowed_failures is None else batch.allowed_failures
        flat = [
            text
            for kind, job in batch.followers.items()
            for text in (_FIELDS[kind], _follower_json(job))
        ]
        answer = await self._redis.run(
            "batch_open", budget, batch.id, batch.queue, allowed, batch.name, *flat
        )
        if answer == b"unknown":
            raise UnknownQueue(f"queue {batch.queue!r} is not configured in the store")
        if answer == b"other":
            raise BatchConflict(f"batch {batch.id} is of another queue than {batch.queue!r}")

    async def seal_batch(self, batch_id: str) -> None:
        if not await self._redis.run("batch_seal", await self._budget_of(batch_id), batch_id):
            raise _unknown(batch_id)

    async def batch(self, batch_id: str) -> BatchView:
        start = keys.prefix(await self._budget_of(batch_id))
        with translated():
            raw = await self._redis.client.hgetall(f"{start}b:{batch_id}")
        if not raw:
            raise _unknown(batch_id)
        return _view(batch_id, raw)

    async def batches(self, queue: str, *, limit: int = 50) -> list[BatchView]:
        start = keys.prefix(await self._redis.budget(queue))
        with translated():
            client = self._redis.client
            ids = [i.decode() for i in await client.zrange(f"{start}batches:{queue}", 0, limit - 1)]
            pipe = client.pipeline(transaction=False)
            for batch_id in ids:
                pipe.hgetall(f"{start}b:{batch_id}")
            rows: list[Any] = await pipe.execute() if ids else []
        return [_view(batch_id, raw) for batch_id, raw in zip(ids, rows, strict=True) if raw]

    async def batch_jobs(self, batch_id: str, *, offset: int, limit: int) -> list[str]:
        start = keys.prefix(await self._budget_of(batch_id))
        with translated():
            ids = await self._redis.client.lrange(
                f"{start}bj:{batch_id}", offset, offset + limit - 1
            )
        return [raw.decode() for raw in ids]

    async def cancel_batch(self, batch_id: str, *, offset: int, limit: int) -> int:
        budget = await self._budget_of(batch_id)
        seen = int(await self._redis.run("batch_cancel", budget, batch_id, offset, limit))
        if seen < 0:
            raise _unknown(batch_id)
        return seen

    async def _budget_of(self, batch_id: str) -> str:
        try:
            return await self._redis.budget_of_job(batch_id)
        except UnknownJob:
            raise _unknown(batch_id) from None
