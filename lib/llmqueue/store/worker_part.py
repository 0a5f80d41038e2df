"""The worker's half of the store: claim, sent, settle, release, heartbeat."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from typing import Any

from llmqueue.errors import StoreUnavailable, UnknownQueue
from llmqueue.job import MAX_PROGRESS_CHARACTERS
from llmqueue.states import RefusalReason, WaitReason
from llmqueue.store import codec, keys
from llmqueue.store.calls_part import CallsPart
from llmqueue.store.connection import translated
from llmqueue.store.executor import MAX_BLOCK_SECONDS
from llmqueue.store.port import (
    Beat,
    BeatReply,
    ClaimReply,
    ClaimRequest,
    Grant,
    SentReply,
    Settlement,
    SettleReply,
)

_UNKNOWN_QUEUE_POLL_SECONDS = 5.0


def _grant(raw: list[Any]) -> Grant:
    timeout_ms = int(raw[7])
    return Grant(
        id=raw[0].decode(),
        fence=raw[1].decode(),
        payload=raw[2],
        attempt=int(raw[3]),
        model=raw[4].decode(),
        tenant=raw[5].decode(),
        feature=raw[6].decode(),
        timeout_seconds=None if timeout_ms < 0 else timeout_ms / 1000,
        crashes=int(raw[8]),
        probe=bool(raw[9]),
        possible_duplicate=bool(raw[10]),
        correlation_id=raw[11].decode(),
        input_tokens=int(raw[12]),
        output_tokens=int(raw[13]),
        max_output_tokens=int(raw[14]),
        handler=raw[15].decode(),
        journaled=bool(raw[16]),
    )


class WorkerPart(CallsPart):
    """See `WorkerStore` in port.py."""

    async def claim(self, request: ClaimRequest) -> ClaimReply:
        try:
            budget = await self._redis.budget(request.queue)
        except UnknownQueue:
            return ClaimReply((), _UNKNOWN_QUEUE_POLL_SECONDS, WaitReason.UNCONFIGURED)
        wait_ms, reason, limit, grants = await self._redis.run(
            "claim",
            budget,
            request.queue,
            request.worker,
            request.slots,
            request.credential,
            int(request.clean),
            secrets.token_urlsafe(9) + ".",
        )
        return ClaimReply(
            grants=tuple(_grant(raw) for raw in grants),
            wait_seconds=wait_ms / 1000,
            reason=WaitReason(reason.decode()) if reason else None,
            limit=limit.decode(),
        )

    async def mark_sent(
        self, queue: str, items: Sequence[tuple[str, str]], *, credential: str
    ) -> list[SentReply]:
        flat = [text for pair in items for text in pair]
        budget = await self._redis.budget_of_lease(queue, flat[0])
        raw = await self._redis.run("sent", budget, credential, *flat)
        return [
            SentReply(
                ok=bool(ok),
                reason=RefusalReason(reason.decode()) if reason else None,
                wait_seconds=wait_ms / 1000,
            )
            for ok, reason, wait_ms in raw
        ]

    async def settle(self, queue: str, items: Sequence[Settlement]) -> list[SettleReply]:
        budget = await self._redis.budget_of_lease(queue, items[0].id)
        now = time.time()
        args: list[str | bytes] = [queue]
        for item in items:
            result = await self._inline(budget, item.fence, item.outcome.result or b"")
            args += [codec.settlement_json(item, now=now), result, codec.record_json(item)]
        raw = await self._redis.run("settle", budget, *args)
        if any(verdict == b"again" for verdict, _ in raw):
            raise StoreUnavailable(
                "a result was written to a server that is no primary any more: settle again"
            )
        return [
            SettleReply(verdict.decode(), codec.STATES.get(letter.decode()))
            for verdict, letter in raw
        ]

    async def release(self, queue: str, items: Sequence[tuple[str, str]]) -> None:
        flat = [text for pair in items for text in pair]
        await self._redis.run("release", await self._redis.budget_of_lease(queue, flat[0]), *flat)

    async def progress(
        self, queue: str, job_id: str, fence: str, *, fraction: float, message: str
    ) -> None:
        await self._redis.run(
            "progress",
            await self._redis.budget_of_lease(queue, job_id),
            job_id,
            fence,
            round(fraction, 4),
            message[:MAX_PROGRESS_CHARACTERS],
        )

    async def beat(self, beat: Beat) -> BeatReply:
        flat = [
            text
            for job_id, fence in beat.leases.items()
            for text in (job_id, fence, *codec.held_fields(beat.held.get(job_id)))
        ]
        held = next(iter(beat.leases), None)
        draining, lost, cancelled = await self._redis.run(
            "heartbeat",
            await self._redis.budget(beat.queue)
            if held is None
            else await self._redis.budget_of_lease(beat.queue, held),
            beat.queue,
            beat.worker,
            beat.slots,
            codec.milliseconds(beat.longest_remaining_seconds),
            beat.credential,
            int(beat.ready),
            beat.pid,
            *flat,
        )
        return BeatReply(
            lost=frozenset(job_id.decode() for job_id in lost),
            cancelled=frozenset(job_id.decode() for job_id in cancelled),
            draining=bool(draining),
        )

    async def leave(self, queue: str, worker: str) -> None:
        await self._redis.run("leave", await self._redis.budget(queue), queue, worker)

    async def wait_for_work(self, queue: str, timeout_seconds: float) -> bool:
        budget = await self._redis.budget(queue)
        with translated():
            popped = await self._redis.blocking.bzpopmin(
                f"{keys.prefix(budget)}wake:{queue}", min(timeout_seconds, MAX_BLOCK_SECONDS)
            )
        return popped is not None
