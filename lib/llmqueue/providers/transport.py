"""Connections that are looked at once more before a request is written to them.

A server may close a kept connection at any time. The pool looks when it hands one out, but between
that and the first byte the store is asked, and what is written after the close is lost in a way
that cannot be told from a call that was made. A look right before the write can be told: nothing
left, so another connection is safe.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterable
from typing import Any, cast

import httpcore2
import httpx2

SocketOption = (
    tuple[int, int, int] | tuple[int, int, bytes | bytearray] | tuple[int, int, None, int]
)

KEEPALIVE_SECONDS = 30.0
SOCKET_OPTIONS: tuple[SocketOption, ...] = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (
            (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
            (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
        )
        if hasattr(socket, "TCP_KEEPIDLE")
        else ()
    ),
)


class StaleConnection(Exception):
    """The server closed a kept connection before the request was written: nothing was sent."""


class _CheckedStream(httpcore2.AsyncNetworkStream):
    """A stream whose first write after an answer fails if the server has said anything since."""

    def __init__(self, stream: httpcore2.AsyncNetworkStream) -> None:
        self._stream = stream
        # False until the first answer: after a handshake session tickets may wait to be read.
        self._between_requests = False

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        data = await self._stream.read(max_bytes, timeout)
        self._between_requests = True
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        if self._between_requests:
            if self._stream.get_extra_info("is_readable"):
                raise StaleConnection("the server closed the connection while it was idle")
            self._between_requests = False
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> httpcore2.AsyncNetworkStream:
        return _CheckedStream(await self._stream.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _CheckedBackend(httpcore2.AsyncNetworkBackend):
    """asyncio's connections, checked."""

    def __init__(self) -> None:
        # The library's type of it is a union with what stands in where anyio is missing.
        self._backend = cast("httpcore2.AsyncNetworkBackend", httpcore2.AnyIOBackend())

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109
        local_address: str | None = None,
        socket_options: Iterable[SocketOption] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        return _CheckedStream(
            await self._backend.connect_tcp(host, port, timeout, local_address, socket_options)
        )


class ProviderTransport(httpx2.AsyncHTTPTransport):
    """httpx2's transport over checked connections. HTTP/1.1, no retries, certificates verified."""

    def __init__(self, *, pool: int) -> None:
        context = httpx2.create_ssl_context()
        super().__init__(verify=context)
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=context,
            max_connections=pool,
            max_keepalive_connections=pool,
            keepalive_expiry=KEEPALIVE_SECONDS,
            retries=0,
            socket_options=SOCKET_OPTIONS,
            network_backend=_CheckedBackend(),
        )
