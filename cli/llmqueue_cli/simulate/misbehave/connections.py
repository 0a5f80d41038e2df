"""Faults of the connection itself: cut, reset, stalled, lied about, far too large."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Awaitable, Callable
from functools import lru_cache

from llmqueue_cli.simulate.call import JSON, Call
from llmqueue_cli.simulate.fault import Fault
from llmqueue_cli.simulate.misbehave.errors import inner_error
from llmqueue_cli.simulate.plan import Work
from llmqueue_cli.simulate.wire import raw_head

_MIB = 1024 * 1024
_GZIP_WBITS = 31


async def _raw_answer(call: Call, length: int, body: bytes) -> None:
    """A 200 that promises `length` bytes and sends `body`."""
    call.live.answered(200)
    headers = call.headers(JSON, ("content-length", str(length)))
    await call.wire.raw(raw_head(200, headers) + body)


async def _worked(call: Call, work: Work) -> bytes:
    await call.do(work)
    return json.dumps(call.document(work.usage)).encode()


async def reset_before_reading(call: Call, fault: Fault, work: Work) -> None:
    """The late form: asked for by a marker in the body, which had to be read for it."""
    call.wire.reset()


async def reset_after_billing(call: Call, fault: Fault, work: Work) -> None:
    await call.do(work)
    call.wire.reset()


async def never_answer(call: Call, fault: Fault, work: Work) -> None:
    if fault.flag("billed", True):
        await call.do(work)
    await call.wire.until_gone()


async def cut_body(call: Call, fault: Fault, work: Work) -> None:
    body = await _worked(call, work)
    await _raw_answer(call, len(body), body[: len(body) // 2])


async def long_content_length(call: Call, fault: Fault, work: Work) -> None:
    body = await _worked(call, work)
    await _raw_answer(call, len(body) + 1000, body)


async def stalled_body(call: Call, fault: Fault, work: Work) -> None:
    body = await _worked(call, work)
    await _raw_answer(call, len(body), body[: len(body) // 2])
    await call.wire.until_gone()


@lru_cache(maxsize=2)
def _bomb(size: int) -> bytes:
    """`size` zero bytes, packed by gzip."""
    packer = zlib.compressobj(level=1, wbits=_GZIP_WBITS)
    zeros = bytes(_MIB)
    parts = [packer.compress(zeros) for _ in range(size // _MIB)]
    return b"".join([*parts, packer.compress(bytes(size % _MIB)), packer.flush()])


async def gzip_bomb(call: Call, fault: Fault, work: Work) -> None:
    packed = await asyncio.to_thread(_bomb, int(fault.number("size", 256 * _MIB)))
    await call.do(work)
    await call.send(200, call.headers(JSON, ("content-encoding", "gzip")), packed)


async def huge_body(call: Call, fault: Fault, work: Work) -> None:
    """Valid JSON, so that only its size is wrong."""
    size = int(fault.number("size", 100_000_000))
    head, tail = b'{"filler": "', b'"}'
    await call.do(work)
    await _raw_answer(call, size, head)
    left = size - len(head) - len(tail)
    block = b"x" * 65_536
    while left > 0:
        await call.wire.raw(block[:left])
        left -= len(block)
    await call.wire.raw(tail)


async def huge_header(call: Call, fault: Fault, work: Work) -> None:
    filler = ("x-filler", "a" * int(fault.number("size", _MIB)))
    body = await _worked(call, work)
    call.live.answered(200)
    headers = call.headers(JSON, filler, ("content-length", str(len(body))))
    await call.wire.raw(raw_head(200, headers) + body)


async def close_idle(call: Call, fault: Fault, work: Work) -> None:
    """Closed `after=` seconds (0) after a good answer that promised to keep the connection."""
    seconds = fault.number("after", 0)
    await call.good(work)
    await asyncio.sleep(seconds)
    await call.wire.close()


async def cut_stream(call: Call, fault: Fault, work: Work) -> None:
    await call.stream(work, deltas=fault.number("deltas", 2))


async def stream_error(call: Call, fault: Fault, work: Work) -> None:
    """An overloaded error as an event; after it the stream ends as it should."""
    words = inner_error(fault)
    if not await call.stream(work, deltas=fault.number("deltas", 2)):
        await call.wire.chunk(call.shape.error_event(words, call.request_id))
        await call.wire.end()


async def stalled_stream(call: Call, fault: Fault, work: Work) -> None:
    if not await call.stream(work, deltas=fault.number("deltas", 2)):
        await call.wire.until_gone()


CONNECTIONS: dict[str, Callable[[Call, Fault, Work], Awaitable[None]]] = {
    "reset_before_reading": reset_before_reading,
    "reset_after_reading": reset_before_reading,
    "reset_after_billing": reset_after_billing,
    "never_answer": never_answer,
    "cut_body": cut_body,
    "long_content_length": long_content_length,
    "stalled_body": stalled_body,
    "gzip_bomb": gzip_bomb,
    "huge_body": huge_body,
    "huge_header": huge_header,
    "close_idle": close_idle,
    "cut_stream": cut_stream,
    "stream_error": stream_error,
    "stalled_stream": stalled_stream,
}
"""All leave the connection unusable where the answer was not whole: the server closes it then."""
