"""Calls to the simulated provider: through a client, and byte by byte."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx2

from llmqueue_cli.simulate.provider import FakeProvider

PATHS = {"openai": "/v1/chat/completions", "anthropic": "/v1/messages"}
OPENAI, ANTHROPIC = PATHS.values()


def body(text: str = "hello", **more: Any) -> dict[str, Any]:
    """A request of either shape."""
    messages = [{"role": "user", "content": text}]
    return {"model": "some-model", "messages": messages, "max_tokens": 100, **more}


async def call(
    http: httpx2.AsyncClient, fake: FakeProvider, text: str = "hello", key: str = "", **more: Any
) -> httpx2.Response:
    """One call in the provider's own shape."""
    headers = {"idempotency-key": key} if key else {}
    path = PATHS[fake.stats()["shape"]]
    return await http.post(fake.url + path, json=body(text, **more), headers=headers)


async def faulty(
    http: httpx2.AsyncClient, fake: FakeProvider, fault: str, **more: Any
) -> httpx2.Response:
    """One call of job `job` that asks for a fault; "" asks for none."""
    return await call(http, fake, f"[[sim:fault={fault}]]" if fault else "hello", "job/1", **more)


async def raw(fake: FakeProvider, fault: str, **more: Any) -> bytes:
    """All bytes until the server ends the connection, without a client's opinion."""
    host, port = fake.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    content = json.dumps(body(f"[[sim:fault={fault}]]" if fault else "hello", **more)).encode()
    head = f"POST {OPENAI} HTTP/1.1\r\nhost: x\r\nidempotency-key: job/1\r\n"
    writer.write(f"{head}content-length: {len(content)}\r\n\r\n".encode() + content)
    try:
        async with asyncio.timeout(10):
            return await reader.read()
    finally:
        writer.transport.abort()


def head_of(answer: bytes) -> tuple[int, dict[str, str], bytes]:
    """(status, headers by lower-case name, the rest)."""
    head, _, rest = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    return int(first.split(" ")[1]), {name.lower(): v for name, v in headers.items()}, rest


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something to become true, at most 10 s."""
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.02)
