"""A provider of few lines on a real socket: answers chat completions, and records what it saw.

Slower and ruder answers are scripted by tests: `delay_seconds`, `gate`, `reply`.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

Reply = Callable[["Received", asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Received:
    """One request as it came in; `gone`: the client closed before the answer was out."""

    body: dict[str, Any]
    headers: dict[str, str]
    at: float
    gone: bool = False

    @property
    def job(self) -> str:
        return self.headers["idempotency-key"].split("/")[0]


def completion(text: str = "ok", *, tokens: tuple[int, int] = (10, 5)) -> bytes:
    return json.dumps(
        {
            "id": "chatcmpl-1",
            "model": "gpt-4o-mini",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": text}}],
            "usage": {"prompt_tokens": tokens[0], "completion_tokens": tokens[1]},
        }
    ).encode()


def response(status: int, body: bytes, **headers: str) -> bytes:
    lines = [
        f"HTTP/1.1 {status} X",
        "content-type: application/json",
        f"content-length: {len(body)}",
        *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@dataclass
class RawProvider:
    """`async with RawProvider() as provider: … provider.url`."""

    delay_seconds: float = 0.0
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    """Answers wait for it; it starts open."""
    reply: Reply | None = None
    received: list[Received] = field(default_factory=list)
    connected: int = 0
    url: str = ""
    _server: asyncio.Server | None = None
    _connections: set[asyncio.Task[None]] = field(default_factory=set)

    async def __aenter__(self) -> Self:
        self.gate.set()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        self.connected += 1
        try:
            while await self._answer(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._connections.discard(task)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        pairs = (line.split(": ", 1) for line in head.decode().split("\r\n")[1:] if ": " in line)
        headers = {name.lower(): value for name, value in pairs}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        request = Received(json.loads(body), headers, time.monotonic())
        self.received.append(request)
        watch = asyncio.create_task(self._watch(reader, request))
        try:
            await asyncio.sleep(self.delay_seconds)
            await self.gate.wait()
            if self.reply is not None:
                await self.reply(request, writer)
                return False
            writer.write(response(200, completion()))
            await writer.drain()
        finally:
            watch.cancel()
            with suppress(asyncio.CancelledError):
                await watch
        return True

    @staticmethod
    async def _watch(reader: asyncio.StreamReader, request: Received) -> None:
        while not reader.at_eof():
            await asyncio.sleep(0.02)
        request.gone = True
