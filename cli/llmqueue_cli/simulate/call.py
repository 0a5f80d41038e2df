"""One call on its way through the provider, and what every answer to it carries."""

from __future__ import annotations

import asyncio
import json
import math
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from llmqueue_cli.simulate.catalogue import ErrorAnswer
from llmqueue_cli.simulate.ledger import LiveCall
from llmqueue_cli.simulate.limiter import Admission, Limiter, Refusal
from llmqueue_cli.simulate.plan import Work
from llmqueue_cli.simulate.shapes.port import Ask, Header, Shape, Usage
from llmqueue_cli.simulate.wire import ClientGone, Wire

JSON = ("content-type", "application/json")
EVENT_STREAM = ("content-type", "text/event-stream; charset=utf-8")


@dataclass(slots=True)
class Call:
    """A call that was read and counted.

    Answers show the limits as they are when the answer begins.
    """

    shape: Shape
    limiter: Limiter
    live: LiveCall
    wire: Wire
    ask: Ask
    admission: Admission | Refusal
    wall: Callable[[], float]
    """Unix seconds now."""
    tells_limits: bool = True
    request_id: str = field(default_factory=lambda: f"req_{uuid.uuid4().hex[:24]}")

    def headers(self, *more: Header) -> list[Header]:
        """The headers of every answer: request id, limits, and `more`."""
        limits: list[Header] = []
        if self.tells_limits:
            limits = self.shape.limit_headers(self.limiter.levels(), wall=self.wall())
        return [(self.shape.request_id_header, self.request_id), *limits, *more]

    def document(self, usage: Usage) -> dict[str, Any]:
        return self.shape.answer(self.ask, usage, self.request_id)

    def bill(self, usage: Usage) -> None:
        """Book the work and correct what the limits count, before the answer shows them."""
        if self.live.bill(
            usage.total_input_tokens,
            usage.output_tokens,
            counted_input_tokens=usage.counted_input_tokens,
        ):
            self._settle(usage.counted_input_tokens, usage.output_tokens)

    def _settle(self, input_tokens: int, output_tokens: int) -> None:
        if isinstance(self.admission, Admission):
            self.limiter.settle(
                self.admission, input_tokens=input_tokens, output_tokens=output_tokens
            )

    def finish(self) -> None:
        """The call is over, however it went; one that was not billed used no tokens."""
        if not self.live.record.billed:
            self._settle(0, 0)
        self.live.ended()

    async def do(self, work: Work) -> None:
        """Take the time of the work and bill it: also for a client that is gone."""
        await asyncio.sleep(work.seconds)
        self.bill(work.usage)

    async def send(self, status: int, headers: list[Header], body: bytes) -> None:
        self.live.answered(status)
        await self.wire.answer(status, headers, body)

    async def send_json(self, status: int, document: Mapping[str, Any], *more: Header) -> None:
        await self.send(status, self.headers(JSON, *more), json.dumps(document).encode())

    async def bad_request(self, message: str) -> None:
        """An honest 400."""
        words = ErrorAnswer(400, message, ("invalid_request_error", None), "invalid_request_error")
        await self.send_json(400, self.shape.error(words, message, self.request_id))

    async def refuse(self, refusal: Refusal) -> None:
        """An honest 429 of the own limiter."""
        self.live.refused()
        words, message = self.shape.refusal(refusal, self.ask)
        wait: list[Header] = []
        if math.isfinite(refusal.wait_seconds):
            wait = self.shape.wait_headers(refusal.wait_seconds)
        await self.send_json(429, self.shape.error(words, message, self.request_id), *wait)

    async def good(self, work: Work) -> None:
        """An honest answer, whole or streamed."""
        if self.ask.stream:
            await self.stream(work)
        else:
            await self.do(work)
            await self.send_json(200, self.document(work.usage))

    async def stream(
        self, work: Work, *, deltas: float = math.inf, with_usage: bool = True
    ) -> bool:
        """Stream an answer, up to a number of deltas with text; returns whether it was whole.

        The first fifth of the time passes before the first delta. Only what was produced is
        billed, except that a client which leaves on the way pays for all: the work goes on.
        """
        pieces = list(
            self.shape.stream(self.ask, work.usage, self.request_id, with_usage=with_usage)
        )
        texts = sum(1 for piece in pieces if piece.tokens)
        try:
            await asyncio.sleep(work.seconds / 5)
            self.live.answered(200)
            await self.wire.begin(200, self.headers(EVENT_STREAM))
            sent = produced = 0
            for piece in pieces:
                if piece.tokens:
                    if sent >= deltas:
                        self.bill(replace(work.usage, output_tokens=produced))
                        return False
                    sent, produced = sent + 1, produced + piece.tokens
                    await asyncio.sleep(work.seconds * 4 / 5 / texts)
                await self.wire.chunk(piece.data)
        except ClientGone:
            self.bill(work.usage)
            raise
        self.bill(work.usage)
        await self.wire.end()
        return True
