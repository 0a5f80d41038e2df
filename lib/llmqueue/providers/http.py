"""The one place where requests leave: an outcome for whatever a provider does, never an exception.

`before_send` is asked from the transport's trace hook, after connecting and before the first byte:
raising `NotSent` there sends nothing and leaves the client usable.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, cast

import httpx2

from llmqueue.outcome import Outcome, Usage
from llmqueue.providers.classify import error_outcome, inner_class
from llmqueue.providers.excerpt import excerpt
from llmqueue.providers.port import HttpRequest, Provider
from llmqueue.providers.sse import SseDecoder
from llmqueue.states import OutcomeClass, Severity

MAX_BODY_BYTES = 16 * 1024 * 1024
MAX_ERROR_BYTES = 64 * 1024
_KEEPALIVE_SECONDS = 30.0
_WRITE_SECONDS = 30.0
_SOCKET_OPTIONS = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        [
            (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
            (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
        ]
        if hasattr(socket, "TCP_KEEPIDLE")
        else []
    ),
]
_STARTED = "send_request_headers.started"
_CONNECTED = "connect_tcp.started"


class NotSent(Exception):
    """Raised by `before_send`: the request must not leave. Never raised by this module."""


class BodyTooLarge(Exception):
    """More than a body may have."""


class UnreadableEncoding(Exception):
    """A content encoding that was not asked for and cannot be read."""


class _Flight:
    """What is known of one request on its way."""

    def __init__(self, before_send: Callable[[], Awaitable[None]]) -> None:
        self._before_send = before_send
        self.sent = False
        self.reused = True

    async def trace(self, event: str, _info: dict[str, Any]) -> None:
        if event.endswith(_CONNECTED):
            self.reused = False
        elif event.endswith(_STARTED):
            await self._before_send()
            self.sent = True


class ProviderClient:
    """One connection pool per process.

    Args:
        pool: connections at most; at least the process' slots.
        verify: False only against test servers.
    """

    def __init__(
        self,
        *,
        connect_seconds: float,
        request_seconds: float,
        stream_idle_seconds: float,
        pool: int,
    ) -> None:
        self._connect_seconds = connect_seconds
        self._request_seconds = request_seconds
        self._stream_idle_seconds = stream_idle_seconds
        limits = httpx2.Limits(
            max_connections=pool,
            max_keepalive_connections=pool,
            keepalive_expiry=_KEEPALIVE_SECONDS,
        )
        self._client = httpx2.AsyncClient(
            transport=httpx2.AsyncHTTPTransport(
                limits=limits, retries=0, socket_options=_SOCKET_OPTIONS, trust_env=True
            ),
            follow_redirects=False,
            trust_env=False,
            headers={"accept-encoding": "identity", "user-agent": "llmqueue"},
        )

    async def close(self) -> None:
        await self._client.aclose()

    async def call(
        self,
        provider: Provider,
        request: HttpRequest,
        *,
        streaming: bool,
        timeout_seconds: float | None,
        before_send: Callable[[], Awaitable[None]],
    ) -> Outcome:
        """Make one call.

        Raises NotSent (from `before_send`) and CancelledError only.
        """
        flight = _Flight(before_send)
        total = timeout_seconds or self._request_seconds
        try:
            async with asyncio.timeout(self._connect_seconds + total):
                return await self._exchange(provider, request, flight, streaming, total)
        except NotSent:
            raise
        except (httpx2.HTTPError, httpx2.StreamError, TimeoutError, OSError) as exc:
            return _transport_outcome(exc, flight)
        except (BodyTooLarge, UnreadableEncoding, zlib.error) as exc:
            return _unknown(f"the answer cannot be read: {exc or type(exc).__name__}")
        except (httpx2.InvalidURL, httpx2.CookieConflict) as exc:
            return Outcome(OutcomeClass.PERMANENT, sent=flight.sent, message=excerpt(str(exc)))

    async def _exchange(
        self,
        provider: Provider,
        request: HttpRequest,
        flight: _Flight,
        streaming: bool,
        total_seconds: float,
    ) -> Outcome:
        read = self._stream_idle_seconds if streaming else total_seconds
        timeout = httpx2.Timeout(
            connect=self._connect_seconds,
            pool=self._connect_seconds,
            write=_WRITE_SECONDS,
            read=max(read, 0.001),
        )
        started = time.monotonic()
        async with self._client.stream(
            request.method,
            request.url,
            headers=dict(request.headers),
            content=request.body,
            timeout=timeout,
            extensions={"trace": flight.trace},
        ) as response:
            headers = {name.lower(): value for name, value in response.headers.items()}
            if (
                streaming
                and response.status_code == 200
                and "event-stream" in headers.get("content-type", "")
            ):
                return await _read_stream(provider, response, headers)
            most = MAX_BODY_BYTES if response.status_code == 200 else MAX_ERROR_BYTES
            body = await _read_body(response, headers, most, cut=response.status_code != 200)
            now = time.time()
            outcome = _redirect(response.status_code, headers) or provider.parse(
                response.status_code,
                headers,
                body,
                elapsed_seconds=time.monotonic() - started,
                now=now,
            )
            return _with_hints(provider, outcome, headers, now)


def _with_hints(
    provider: Provider, outcome: Outcome, headers: dict[str, str], now: float
) -> Outcome:
    from dataclasses import replace  # noqa: PLC0415

    hints = provider.limit_hints(headers, now=now)
    return replace(outcome, limits=hints) if hints else outcome


def _redirect(status: int, headers: dict[str, str]) -> Outcome | None:
    if not 300 <= status < 400:
        return None
    target = excerpt(headers.get("location", "nowhere"))
    return Outcome(
        OutcomeClass.PERMANENT,
        status=status,
        message=f"redirected to {target}; redirects are not followed: correct provider.baseURL",
    )


# ---------------------------------------------------------------- bodies


async def _decoded(
    response: httpx2.Response, headers: dict[str, str], most: int
) -> AsyncIterator[bytes]:
    """Body chunks, decompressed within bounds: a small gzip must not become gigabytes."""
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding in ("", "identity"):
        async for chunk in response.aiter_raw():
            yield chunk
        return
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise UnreadableEncoding(f"content-encoding {encoding!r}")
    inflater = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)
    async for chunk in response.aiter_raw():
        pending = chunk
        while pending:
            out = inflater.decompress(pending, most)
            pending = inflater.unconsumed_tail
            yield out
    if not inflater.eof:
        raise UnreadableEncoding("the compressed body is cut")


async def _read_body(
    response: httpx2.Response, headers: dict[str, str], most: int, *, cut: bool
) -> bytes:
    """The body; above `most` bytes it is cut (errors) or refused (answers)."""
    parts: list[bytes] = []
    size = 0
    async for chunk in _decoded(response, headers, most):
        parts.append(chunk)
        size += len(chunk)
        if size > most:
            if cut:
                break
            raise BodyTooLarge(f"more than {most} bytes")
    return b"".join(parts)


async def _read_stream(
    provider: Provider, response: httpx2.Response, headers: dict[str, str]
) -> Outcome:
    assembler, decoder = provider.assembler(), SseDecoder()
    size = 0
    now = time.time()
    try:
        async for chunk in _decoded(response, headers, MAX_BODY_BYTES):
            size += len(chunk)
            if size > MAX_BODY_BYTES:
                raise BodyTooLarge(f"more than {MAX_BODY_BYTES} bytes")
            for event in decoder.feed(chunk):
                assembler.feed(event)
                if assembler.error:
                    kind = inner_class(assembler.error)
                    return error_outcome(
                        kind,
                        assembler.error,
                        status=200,
                        headers=headers,
                        now=now,
                        usage=assembler.usage(),
                    )
    except (httpx2.HTTPError, BodyTooLarge, UnreadableEncoding, zlib.error) as exc:
        if not assembler.finished:
            return _unknown(f"the stream was cut: {_words(exc)}", assembler.usage())
    if not assembler.finished:
        return _unknown("the stream ended before its end", assembler.usage())
    outcome = provider.parse(200, headers, assembler.document(), elapsed_seconds=0.0, now=now)
    return _with_hints(provider, outcome, headers, now)


# ---------------------------------------------------------------- transport errors


def _words(exc: BaseException) -> str:
    return excerpt(str(exc)) or type(exc).__name__


def _unknown(message: str, usage: Usage | None = None) -> Outcome:
    return Outcome(OutcomeClass.UNKNOWN, message=excerpt(message), usage=usage)


def _causes(exc: BaseException) -> list[BaseException]:
    """The exception and all it came from."""
    found: list[BaseException] = []
    pending: list[BaseException | None] = [exc]
    while pending:
        one = pending.pop()
        if one is None or one in found:
            continue
        found.append(one)
        if isinstance(one, BaseExceptionGroup):
            pending += cast("BaseExceptionGroup[BaseException]", one).exceptions
        pending += [one.__cause__, one.__context__]
    return found


def _not_sent_class(exc: BaseException) -> OutcomeClass:
    """Why nothing was sent: a wrong set-up needs a person, all else is tried again."""
    for cause in _causes(exc):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return OutcomeClass.AUTH
        if isinstance(cause, socket.gaierror) and cause.errno == socket.EAI_NONAME:
            return OutcomeClass.AUTH
    if isinstance(exc, httpx2.ProxyError) and "407" in str(exc):
        return OutcomeClass.AUTH
    if isinstance(exc, (httpx2.UnsupportedProtocol, httpx2.LocalProtocolError)):
        return OutcomeClass.PERMANENT
    return OutcomeClass.TRANSIENT


def _transport_outcome(exc: Exception, flight: _Flight) -> Outcome:
    if not flight.sent:
        kind = _not_sent_class(exc)
        return Outcome(
            kind,
            sent=False,
            message=f"nothing was sent: {type(exc).__name__}: {_words(exc)}",
            code=type(exc).__name__,
            severity=Severity.CRITICAL if kind is OutcomeClass.AUTH else Severity.ERROR,
        )
    code = "stale_connection" if flight.reused and _closed_at_once(exc) else type(exc).__name__
    return Outcome(
        OutcomeClass.UNKNOWN,
        message=f"no complete answer: {type(exc).__name__}: {_words(exc)}",
        code=code,
    )


def _closed_at_once(exc: Exception) -> bool:
    return isinstance(exc, (httpx2.WriteError, httpx2.ReadError, httpx2.RemoteProtocolError))
