"""The worker's half of the store for jobs that run a handler: their calls and journal."""

from __future__ import annotations

import time
from collections.abc import Sequence

from llmqueue.errors import StoreUnavailable
from llmqueue.job import MAX_RESULT_BYTES
from llmqueue.states import WaitReason
from llmqueue.store import codec, keys
from llmqueue.store.connection import translated
from llmqueue.store.executor import Executor
from llmqueue.store.port import AcquireReply, CallRequest, FinishedCall, Journal

INLINE_RESULT_BYTES = 64 * 1024
"""Larger results are written by a plain SET and only renamed by the script."""
WAITING_RESULT = b"\1"
_WAITING_RESULT_SECONDS = 3600
_ANSWER_MISSING = -1


class ParkedResults:
    """Puts a large result where a script finds it."""

    _redis: Executor

    async def _inline(self, budget: str, name: str, result: bytes) -> bytes:
        """The result, or what stands for one that waits in `r:<name>`."""
        if len(result) <= INLINE_RESULT_BYTES:
            return result
        assert len(result) <= MAX_RESULT_BYTES, "the caller bounds results"  # noqa: S101
        with translated():
            await self._redis.client.set(
                f"{keys.prefix(budget)}r:{name}", result, ex=_WAITING_RESULT_SECONDS
            )
        return WAITING_RESULT


class CallsPart(ParkedResults):
    """See `WorkerStore` in port.py."""

    async def acquire(self, queue: str, request: CallRequest) -> AcquireReply:
        charge = request.charge
        worst = "" if charge.worst_nano_usd is None else charge.worst_nano_usd
        verdict, *rest = await self._redis.run(
            "acquire",
            await self._redis.budget_of_lease(queue, request.id),
            request.credential,
            request.id,
            request.fence,
            request.number,
            request.name,
            charge.input_tokens,
            charge.output_tokens,
            worst,
            request.model,
        )
        if not rest:
            return AcquireReply(verdict.decode())
        wait_ms, reason, limit, *reserved = rest
        return AcquireReply(
            verdict.decode(),
            wait_seconds=wait_ms / 1000,
            reason=WaitReason(reason.decode()) if reason else None,
            limit=limit.decode(),
            input_tokens=reserved[0] if reserved else 0,
            output_tokens=reserved[1] if reserved else 0,
        )

    async def finish_calls(self, queue: str, calls: Sequence[FinishedCall]) -> list[bool]:
        budget = await self._redis.budget_of_lease(queue, calls[0].settlement.id)
        now = time.time()
        args: list[str | bytes] = [queue]
        for call in calls:
            item = call.settlement
            answer = await self._inline(
                budget, f"{item.fence}:{call.number}", item.outcome.result or b""
            )
            args += [codec.finished_call_json(call, now=now), answer, codec.record_json(item)]
        answers: list[int] = await self._redis.run("finish_call", budget, *args)
        if _ANSWER_MISSING in answers:
            raise StoreUnavailable(
                "an answer was written to a server that is no primary any more: finish it again"
            )
        return [bool(answer) for answer in answers]

    async def journal(self, queue: str, job_id: str) -> Journal:
        start = keys.prefix(await self._redis.budget_of_lease(queue, job_id))
        with translated():
            client = self._redis.client
            names: list[bytes] = await client.lrange(f"{start}c:{job_id}", 0, -1)
            in_doubt: bytes | None = await client.hget(f"{start}j:{job_id}", "Q")
            kept = [f"{start}c:{job_id}:{name.decode()}" for name in names]
            answers: list[bytes | None] = await client.mget(kept) if kept else []
        return Journal(
            answers={
                name.decode(): answer
                for name, answer in zip(names, answers, strict=True)
                if answer is not None
            },
            in_doubt=frozenset((in_doubt or b"").decode().split()),
        )
