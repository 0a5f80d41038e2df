"""Calls of a provider client to raw servers, and the scripts these play."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

from llmqueue.outcome import Outcome
from llmqueue.providers.http import ProviderClient
from llmqueue.providers.port import HttpRequest, Provider
from llmqueue.providers.registry import get_provider
from llmqueue.states import ProviderType
from support.rawserver import Peer, raw_server

OPENAI = get_provider(ProviderType.OPENAI)
ANTHROPIC = get_provider(ProviderType.ANTHROPIC)
KEY = "0123456789nobodys"
QUESTION = json.dumps({"messages": [{"role": "user", "content": "x" * 40}]}).encode()
ANSWER = json.dumps(
    {
        "choices": [{"index": 0, "message": {"content": "hi"}}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1},
    }
).encode()
STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
Script = Callable[[Peer], Awaitable[None]]


async def yes() -> None:
    """A `before_send` that lets everything go."""


def new_client(**changes: float) -> ProviderClient:
    seconds = {"connect_seconds": 2.0, "request_seconds": 5.0, "stream_idle_seconds": 0.3}
    pool = int(changes.pop("pool", 4))
    return ProviderClient(pool=pool, **{**seconds, **changes})


async def call(
    client: ProviderClient,
    url: str,
    *,
    streaming: bool = False,
    timeout_seconds: float | None = None,
    before_send: Callable[[], Awaitable[None]] = yes,
    provider: Provider = OPENAI,
    headers: dict[str, str] | None = None,
) -> Outcome:
    named = {"content-type": "application/json", "x-api-key": KEY, **(headers or {})}
    return await client.call(
        provider,
        HttpRequest("POST", url, named, QUESTION),
        streaming=streaming,
        timeout_seconds=timeout_seconds,
        before_send=before_send,
    )


async def once(
    client: ProviderClient,
    script: Script,
    *,
    streaming: bool = False,
    timeout_seconds: float | None = None,
    provider: Provider = OPENAI,
) -> Outcome:
    """One call to a server of its own."""
    async with raw_server(script) as server:
        return await call(
            client,
            server.url,
            streaming=streaming,
            timeout_seconds=timeout_seconds,
            provider=provider,
        )


def answering(body: bytes, *, status: int = 200, extra: str = "") -> Script:
    """Answers every request of a connection alike."""

    async def script(peer: Peer) -> None:
        while True:
            await peer.request()
            await peer.answer(body, status=status, extra=extra)

    return script


def sending(data: bytes) -> Script:
    """Sends bytes after the request and closes."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(data)

    return script


def event(data: object, name: str = "") -> bytes:
    """One server-sent event."""
    text = data if isinstance(data, str) else json.dumps(data)
    return (f"event: {name}\n" if name else "").encode() + f"data: {text}\n\n".encode()


def chunked(*pieces: bytes, end: bool = True) -> bytes:
    """A streamed answer of pieces, with or without its proper end."""
    body = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    return STREAM_HEAD + b"transfer-encoding: chunked\r\n\r\n" + body + (b"0\r\n\r\n" * end)
