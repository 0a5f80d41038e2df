"""One connection: requests are parsed by h11, answers are honest (h11) or any bytes at all."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus

import h11

Header = tuple[str, str]
_READ_BYTES = 64 * 1024
_MAX_HEAD_BYTES = 64 * 1024
MAX_BODY_BYTES = 64 * 1024 * 1024


class ClientGone(Exception):
    """The client closed the connection, or was idle for too long."""


class BadHttp(Exception):
    """What came is no HTTP, or more of it than a request may have."""


@dataclass(frozen=True, slots=True)
class Head:
    """The start of a request; header names are lower-case."""

    method: str
    target: str
    headers: Mapping[str, str]


def reason_of(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"


def raw_head(status: int, headers: Iterable[Header]) -> bytes:
    """A status line and headers, as they are."""
    lines = [f"HTTP/1.1 {status} {reason_of(status)}", *(f"{name}: {v}" for name, v in headers)]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


class Wire:
    """A server's end of a connection.

    Raises ClientGone from everything that reads or writes.
    """

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, idle_seconds: float
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._idle_seconds = idle_seconds
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=_MAX_HEAD_BYTES)
        self.idle = True
        """Whether no request is being read or answered."""

    # ---- reading

    async def read_head(self) -> Head | None:
        """The next request; None where the client closes or stays silent instead.

        Raises BadHttp.
        """
        self.idle = True
        try:
            async with asyncio.timeout(self._idle_seconds):
                event = await self._event()
        except (ClientGone, TimeoutError):
            return None
        if not isinstance(event, h11.Request):
            return None
        self.idle = False
        headers = {name.decode().lower(): value.decode("latin-1") for name, value in event.headers}
        return Head(event.method.decode(), event.target.decode("latin-1"), headers)

    async def read_body(self) -> bytes:
        """The rest of the request. Raises BadHttp above MAX_BODY_BYTES."""
        if self._http.they_are_waiting_for_100_continue:
            await self.raw(b"HTTP/1.1 100 Continue\r\n\r\n")
        parts: list[bytes] = []
        size = 0
        while True:
            event = await self._event()
            if not isinstance(event, h11.Data):
                return b"".join(parts)
            parts.append(bytes(event.data))
            size += len(event.data)
            if size > MAX_BODY_BYTES:
                raise BadHttp(f"a body of more than {MAX_BODY_BYTES} bytes")

    async def _event(self) -> h11.Event | type[h11.PAUSED]:
        try:
            while True:
                event = self._http.next_event()
                if event is not h11.NEED_DATA:
                    return event  # type: ignore[return-value]
                self._http.receive_data(await self._read())
        except h11.RemoteProtocolError as exc:
            raise BadHttp(str(exc)) from exc

    async def _read(self) -> bytes:
        try:
            return await self._reader.read(_READ_BYTES)
        except OSError as exc:
            raise ClientGone from exc

    async def until_gone(self) -> None:
        """Wait until the client closes; whatever else it sends is dropped."""
        with contextlib.suppress(ClientGone):
            while await self._read():
                pass

    # ---- honest answers

    async def answer(self, status: int, headers: Sequence[Header], body: bytes) -> None:
        """A whole answer; the connection stays open."""
        length = [] if status in (204, 304) else [("content-length", str(len(body)))]
        data = self._http.send(self._response(status, [*headers, *length]))
        data = (data or b"") + (self._http.send(h11.Data(data=body)) or b"")
        await self.raw(data + (self._http.send(h11.EndOfMessage()) or b""))

    async def begin(self, status: int, headers: Sequence[Header]) -> None:
        """Begin an answer in chunks."""
        chunked = [*headers, ("transfer-encoding", "chunked")]
        await self.raw(self._http.send(self._response(status, chunked)) or b"")

    async def chunk(self, data: bytes) -> None:
        await self.raw(self._http.send(h11.Data(data=data)) or b"")

    async def end(self) -> None:
        await self.raw(self._http.send(h11.EndOfMessage()) or b"")

    @staticmethod
    def _response(status: int, headers: Sequence[Header]) -> h11.Response:
        return h11.Response(
            status_code=status, headers=list(headers), reason=reason_of(status).encode()
        )

    def next(self) -> bool:
        """Get ready for another request; False where this connection can take none."""
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
            return not self._writer.is_closing()
        return False

    # ---- anything at all

    async def raw(self, data: bytes) -> None:
        """Send bytes as they are."""
        if self._writer.is_closing():
            raise ClientGone
        try:
            self._writer.write(data)
            await self._writer.drain()
        except OSError as exc:
            raise ClientGone from exc

    def reset(self) -> None:
        """End with a reset: the client reads ECONNRESET, not an end of file."""
        sock = self._writer.get_extra_info("socket")
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    async def close(self) -> None:
        """End in order."""
        with contextlib.suppress(OSError):
            self._writer.close()
            await self._writer.wait_closed()

    def drop(self) -> None:
        """Let go without waiting for anything."""
        self._writer.transport.abort()
