"""The one place where requests leave: an outcome for whatever a provider does, never an exception.

`before_send` is asked from the transport's trace hook, after connecting and before the first byte:
raising `NotSent` there sends nothing and leaves the client usable.

Proxies named in the environment (HTTPS_PROXY, …) are not used: a call goes where `base_url` says.
Certificates are verified; SSL_CERT_FILE and SSL_CERT_DIR name another trust store.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any

import httpx2

from llmqueue.outcome import Outcome
from llmqueue.providers.bodies import MAX_BODY_BYTES, Unreadable, read_answer, read_error
from llmqueue.providers.estimate import request_tokens
from llmqueue.providers.excerpt import without
from llmqueue.providers.failures import no_answer, not_sent, redirected
from llmqueue.providers.port import HttpRequest, Provider, StreamAssembler
from llmqueue.providers.stream import follow, stream_outcome
from llmqueue.providers.transport import ProviderTransport, StaleConnection

__all__ = ["MAX_BODY_BYTES", "NotSent", "ProviderClient"]

_BROKEN = (
    httpx2.HTTPError,
    httpx2.InvalidURL,
    Unreadable,
    OSError,
    UnicodeError,
    RecursionError,
)
_WRITE_SECONDS = 30.0
_STARTED = "send_request_headers.started"
_CONNECTED = "connect_tcp.started"
_TRIES = 2
"""A call that met a closed connection before its first byte is made once more."""


class NotSent(Exception):
    """Raised by `before_send`: the request must not leave. Never raised by this module."""


class _Flight:
    """What is known of one request on its way."""

    def __init__(
        self, before_send: Callable[[], Awaitable[None]], *, seconds: float, clock: asyncio.Timeout
    ) -> None:
        self._before_send = before_send
        self._seconds = seconds
        self._clock = clock
        self.refusal: BaseException | None = None
        self.sent = False
        self.kept = True
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self.assembler: StreamAssembler | None = None

    async def trace(self, event: str, _info: dict[str, Any]) -> None:
        if event.endswith(_CONNECTED):
            self.kept = False
        elif event.endswith(_STARTED):
            try:
                await self._before_send()
            except BaseException as exc:
                self.refusal = exc
                raise
            self.sent = True
            # The provider's time begins now, whatever connecting and asking took.
            self._clock.reschedule(asyncio.get_running_loop().time() + self._seconds)

    def answered(self, response: httpx2.Response) -> None:
        self.status = response.status_code
        self.headers = {name.lower(): value for name, value in response.headers.items()}


class ProviderClient:
    """One connection pool per process; secrets go out in headers and nowhere else.

    Args:
        connect_seconds: bound of waiting for a connection of the pool, of connecting and of TLS.
        request_seconds: bound of a call from its first byte on, where the call names none.
        stream_idle_seconds: longest silence within a stream.
        pool: connections at most; at least the process' slots.
        clock: Unix seconds, for dates in headers.
    """

    def __init__(
        self,
        *,
        connect_seconds: float,
        request_seconds: float,
        stream_idle_seconds: float,
        pool: int,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._connect_seconds = connect_seconds
        self._request_seconds = request_seconds
        self._stream_idle_seconds = stream_idle_seconds
        self._clock = clock
        self._client = httpx2.AsyncClient(
            transport=ProviderTransport(pool=pool),
            follow_redirects=False,
            trust_env=False,
            # Cookies would carry one job's answer into another's call.
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
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
        """Make one call. `before_send` is asked again if nothing left at first.

        Raises what `before_send` raises, and CancelledError; the connection is closed then.
        """
        outcome = None
        for _ in range(_TRIES):
            outcome = await self._try(
                provider, request, streaming, timeout_seconds or self._request_seconds, before_send
            )
            if outcome.sent or outcome.code != "stale_connection":
                break
        assert outcome is not None  # noqa: S101
        return _without_secrets(_with_input(outcome, request), request)

    async def _try(
        self,
        provider: Provider,
        request: HttpRequest,
        streaming: bool,
        seconds: float,
        before_send: Callable[[], Awaitable[None]],
    ) -> Outcome:
        clock = asyncio.timeout(None)
        flight = _Flight(before_send, seconds=seconds, clock=clock)
        try:
            async with clock:
                outcome = await self._exchange(provider, request, flight, streaming)
        except StaleConnection as exc:
            return not_sent(exc)
        except _BROKEN as exc:
            if exc is flight.refusal:
                raise
            if not flight.sent or isinstance(exc, httpx2.LocalProtocolError):
                return not_sent(exc)
            outcome = self._ended(provider, flight, exc)
        return replace(outcome, limits=provider.limit_hints(flight.headers, now=self._clock()))

    def _ended(self, provider: Provider, flight: _Flight, exc: Exception) -> Outcome:
        """What a call came to that was sent and broke off."""
        if flight.assembler and flight.assembler.finished:
            return stream_outcome(provider, flight.assembler, flight.headers, now=self._clock())
        return no_answer(
            exc,
            status=flight.status,
            headers=flight.headers,
            kept=flight.kept,
            usage=flight.assembler.usage() if flight.assembler else None,
        )

    async def _exchange(
        self, provider: Provider, request: HttpRequest, flight: _Flight, streaming: bool
    ) -> Outcome:
        begun = time.monotonic()
        async with self._client.stream(
            request.method,
            request.url,
            headers=dict(request.headers),
            content=request.body,
            timeout=httpx2.Timeout(
                None,
                connect=self._connect_seconds,
                pool=self._connect_seconds,
                write=_WRITE_SECONDS,
            ),
            extensions={"trace": flight.trace},
        ) as response:
            flight.answered(response)
            status, headers = response.status_code, flight.headers
            if 300 <= status < 400:
                return redirected(status, headers)
            if status == 200 and streaming and "event-stream" in headers.get("content-type", ""):
                flight.assembler = provider.assembler()
                await follow(
                    flight.assembler, response, headers, idle_seconds=self._stream_idle_seconds
                )
                return stream_outcome(provider, flight.assembler, headers, now=self._clock())
            read = read_answer if 200 <= status < 300 else read_error
            body = await read(response, headers)
            return provider.parse(
                status, headers, body, elapsed_seconds=time.monotonic() - begun, now=self._clock()
            )


def _with_input(outcome: Outcome, request: HttpRequest) -> Outcome:
    """Without reported usage the input is estimated from what was sent: unknown is never 0."""
    usage = outcome.usage
    if usage is None or not usage.estimated or usage.input_tokens:
        return outcome
    return replace(outcome, usage=replace(usage, input_tokens=request_tokens(request.body)))


def _without_secrets(outcome: Outcome, request: HttpRequest) -> Outcome:
    """Providers repeat what they were sent: the key must not come back in words."""
    keys = tuple(
        value.removeprefix("Bearer ")
        for name, value in request.headers.items()
        if name.lower() in ("authorization", "x-api-key", "api-key")
    )
    return replace(
        outcome,
        message=without(outcome.message, keys),
        code=without(outcome.code, keys),
        request_id=without(outcome.request_id, keys),
    )
