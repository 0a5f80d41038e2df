"""Following a streamed answer to its end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping

import httpx2

from llmqueue.outcome import Outcome
from llmqueue.providers.bodies import MAX_BODY_BYTES, Unreadable, decoded
from llmqueue.providers.classify import error_outcome, inner_class
from llmqueue.providers.headers import request_id
from llmqueue.providers.port import Provider, StreamAssembler
from llmqueue.providers.sse import SseDecoder
from llmqueue.states import OutcomeClass

_TRAILER_SECONDS = 1.0
"""How long a finished stream may take to close; in time its connection can be used again."""


async def follow(
    assembler: StreamAssembler,
    response: httpx2.Response,
    headers: Mapping[str, str],
    *,
    idle_seconds: float,
) -> None:
    """Feed all events until the answer is complete, an error event or the end.

    Raises Unreadable, TimeoutError (too long a silence) and httpx2.HTTPError; the answer may be
    complete for all that: `assembler.finished` says so.
    """
    decoder = SseDecoder()
    now = asyncio.get_running_loop().time
    size = 0
    async with (
        asyncio.timeout(idle_seconds) as silence,
        contextlib.aclosing(decoded(response, headers)) as chunks,
    ):
        async for chunk in chunks:
            size += len(chunk)
            if size > MAX_BODY_BYTES:
                raise Unreadable(f"the stream has more than {MAX_BODY_BYTES} bytes")
            for event in decoder.feed(chunk):
                if not assembler.finished:
                    assembler.feed(event)
                if assembler.error:
                    return
            silence.reschedule(now() + (_TRAILER_SECONDS if assembler.finished else idle_seconds))
        assembler.end()


def stream_outcome(
    provider: Provider, assembler: StreamAssembler, headers: Mapping[str, str], *, now: float
) -> Outcome:
    """What a stream came to that ended by itself."""
    if assembler.error:
        return error_outcome(
            inner_class(assembler.error),
            assembler.error,
            status=200,
            headers=headers,
            now=now,
            usage=assembler.usage(),
        )
    if not assembler.finished:
        return Outcome(
            OutcomeClass.UNKNOWN,
            status=200,
            message="the stream ended before its end",
            code="cut_stream",
            usage=assembler.usage(),
            request_id=request_id(headers),
        )
    return provider.parse(200, headers, assembler.document(), elapsed_seconds=0.0, now=now)
