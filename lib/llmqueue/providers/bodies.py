"""Reading bodies within bounds: decompressed, never more than a cap in memory."""

from __future__ import annotations

import asyncio
import contextlib
import zlib
from collections.abc import AsyncGenerator, Mapping

import httpx2

MAX_BODY_BYTES = 16 * 1024 * 1024
MAX_ERROR_BYTES = 64 * 1024
_ERROR_SECONDS = 5.0
_INFLATE_BYTES = 1024 * 1024


class Unreadable(Exception):
    """The body is larger than its bound, cut, or not encoded as its headers say."""


async def decoded(response: httpx2.Response, headers: Mapping[str, str]) -> AsyncGenerator[bytes]:
    """Body chunks, decompressed a bounded piece at a time: a small gzip must not become gigabytes.

    Raises Unreadable where the encoding is unknown or broken, httpx2.HTTPError where it is cut.
    """
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding in ("", "identity"):
        async for chunk in response.aiter_raw():
            yield chunk
        return
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise Unreadable(f"content-encoding {encoding[:40]!r} was not asked for")
    inflater = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)
    async for chunk in response.aiter_raw():
        pending = chunk
        while pending:
            try:
                piece = inflater.decompress(pending, _INFLATE_BYTES)
            except zlib.error as exc:
                raise Unreadable(f"broken {encoding}: {exc}") from exc
            pending = inflater.unconsumed_tail
            yield piece
    if not inflater.eof:
        raise Unreadable(f"the {encoding} body is cut")


async def read_answer(response: httpx2.Response, headers: Mapping[str, str]) -> bytes:
    """A whole body of at most MAX_BODY_BYTES. Raises Unreadable, httpx2.HTTPError."""
    parts: list[bytes] = []
    size = 0
    async with contextlib.aclosing(decoded(response, headers)) as chunks:
        async for chunk in chunks:
            size += len(chunk)
            if size > MAX_BODY_BYTES:
                raise Unreadable(f"the answer has more than {MAX_BODY_BYTES} bytes")
            parts.append(chunk)
    return b"".join(parts)


async def read_error(response: httpx2.Response, headers: Mapping[str, str]) -> bytes:
    """As much of an error's body as can be had soon: its status counts, whatever is wrong with the
    rest."""
    parts: list[bytes] = []
    size = 0
    with contextlib.suppress(httpx2.HTTPError, Unreadable, TimeoutError):
        async with (
            asyncio.timeout(_ERROR_SECONDS),
            contextlib.aclosing(decoded(response, headers)) as chunks,
        ):
            async for chunk in chunks:
                parts.append(chunk)
                size += len(chunk)
                if size > MAX_ERROR_BYTES:
                    break
    return b"".join(parts)
