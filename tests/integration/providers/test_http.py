"""The transport against real sockets: an outcome for whatever a server does."""

from __future__ import annotations

import asyncio
import gzip
import json
import resource
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from llmqueue.outcome import Outcome
from llmqueue.providers.http import MAX_BODY_BYTES, NotSent, ProviderClient
from llmqueue.providers.port import HttpRequest
from llmqueue.providers.registry import get_provider
from llmqueue.states import OutcomeClass, ProviderType
from support.rawserver import Peer, raw_server
from support.valkey import free_port

PROVIDER = get_provider(ProviderType.OPENAI)
ANTHROPIC = get_provider(ProviderType.ANTHROPIC)
ANSWER = json.dumps(
    {
        "choices": [{"index": 0, "message": {"content": "hi"}}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1},
    }
).encode()
Script = Callable[[Peer], Awaitable[None]]


@pytest.fixture
async def client() -> AsyncIterator[ProviderClient]:
    client = ProviderClient(connect_seconds=2, request_seconds=5, stream_idle_seconds=0.3, pool=4)
    yield client
    await client.close()


async def call(
    client: ProviderClient,
    url: str,
    *,
    streaming: bool = False,
    timeout_seconds: float | None = None,
    before_send: Callable[[], Awaitable[None]] | None = None,
    provider: object = PROVIDER,
) -> Outcome:
    async def nothing() -> None:
        return None

    return await client.call(
        provider,  # type: ignore[arg-type]
        HttpRequest("POST", url, {"content-type": "application/json", "x-api-key": "k"}, b"{}"),
        streaming=streaming,
        timeout_seconds=timeout_seconds,
        before_send=before_send or nothing,
    )


async def once(client: ProviderClient, script: Script, **options: object) -> Outcome:
    async with raw_server(script) as server:
        return await call(client, server.url, **options)  # type: ignore[arg-type]


def answering(body: bytes, **options: object) -> Script:
    async def script(peer: Peer) -> None:
        while True:
            await peer.request()
            await peer.answer(body, **options)  # type: ignore[arg-type]

    return script


def sending(data: bytes) -> Script:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(data)

    return script


async def test_an_answer(client: ProviderClient) -> None:
    outcome = await once(client, answering(ANSWER))
    assert (outcome.kind, outcome.sent, outcome.result) == (OutcomeClass.SUCCESS, True, ANSWER)


@pytest.mark.parametrize("warm", [False, True], ids=["new-connection", "kept-connection"])
async def test_refusing_before_the_first_byte(client: ProviderClient, warm: bool) -> None:
    """`before_send` raises: nothing is sent, the client stays usable."""
    requests = 0

    async def script(peer: Peer) -> None:
        nonlocal requests
        while True:
            await peer.request()
            requests += 1
            await peer.answer(ANSWER)

    async def refuse() -> None:
        raise NotSent

    async with raw_server(script) as server:
        if warm:
            await call(client, server.url)
        for _ in range(6):
            with pytest.raises(NotSent):
                await call(client, server.url, before_send=refuse)
        await asyncio.sleep(0.05)
        assert requests == int(warm)
        assert (await call(client, server.url)).kind is OutcomeClass.SUCCESS


async def test_connect_refused_is_not_sent(client: ProviderClient) -> None:
    """P24: nothing was sent: retried at no cost."""
    outcome = await call(client, f"http://127.0.0.1:{free_port()}")
    assert (outcome.kind, outcome.sent) == (OutcomeClass.TRANSIENT, False)


async def test_reset_after_sending_is_unknown(client: ProviderClient) -> None:
    """P24: the bytes left, then a reset: it may be billed."""

    async def script(peer: Peer) -> None:
        await peer.request()
        peer.reset()

    outcome = await once(client, script)
    assert (outcome.kind, outcome.sent) == (OutcomeClass.UNKNOWN, True)


async def test_unknown_host_needs_a_person(client: ProviderClient) -> None:
    outcome = await call(client, "http://no-such-host.invalid/")
    assert outcome.sent is False
    assert outcome.kind in (OutcomeClass.AUTH, OutcomeClass.TRANSIENT)


async def test_read_timeout_is_unknown(client: ProviderClient) -> None:
    """P23: the provider took it and never answers."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await asyncio.sleep(5)

    outcome = await once(client, script, timeout_seconds=0.3)
    assert outcome.kind is OutcomeClass.UNKNOWN


BROKEN = {
    # P18, P21
    "cut-body": b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n" + ANSWER[:20],
    "cut-chunked": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n20\r\n{",
    "no-http": b"\x00\xff\x00\xff\r\n\r\n",
    "nothing": b"",
    "megabyte-header": b"HTTP/1.1 200 OK\r\nx: " + b"a" * 1_000_000 + b"\r\n\r\n",
    "odd-encoding": b"HTTP/1.1 200 OK\r\ncontent-encoding: br\r\ncontent-length: 3\r\n\r\nabc",
    "bad-gzip": b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 3\r\n\r\nabc",
    "cut-gzip": b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 10\r\n\r\n"
    + gzip.compress(ANSWER)[:10],
}


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN.keys())
async def test_broken_answers_are_unknown(client: ProviderClient, data: bytes) -> None:
    """P18, P21: never half parsed, never an exception."""
    outcome = await once(client, sending(data))
    assert (outcome.kind, outcome.sent) == (OutcomeClass.UNKNOWN, True)


async def test_gzip_is_read(client: ProviderClient) -> None:
    body = gzip.compress(ANSWER)
    outcome = await once(client, answering(body, extra="content-encoding: gzip\r\n"))
    assert outcome.result == ANSWER


async def test_bombs_leave_memory_flat(client: ProviderClient) -> None:
    """P21: a gzip bomb and 100 MB: an outcome, and no more memory than the cap."""
    packer = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(300)) + packer.flush()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcome = await once(client, answering(bomb, extra="content-encoding: gzip\r\n"))
    assert outcome.kind is OutcomeClass.UNKNOWN

    async def flood(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 100000000\r\n\r\n")
        for _ in range(1600):
            await peer.send(bytes(65536))

    outcome = await once(client, flood)
    assert outcome.kind is OutcomeClass.UNKNOWN
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown_kib * 1024 < 6 * MAX_BODY_BYTES


async def test_long_error_pages_are_cut(client: ProviderClient) -> None:
    outcome = await once(client, answering(b"<html>" + b"x" * 500_000, status=500))
    assert outcome.kind is OutcomeClass.TRANSIENT
    assert len(outcome.message) <= 1024


async def test_redirects_are_not_followed(client: ProviderClient) -> None:
    """P22: a 307 to another host never sees the key."""
    reached: list[bytes] = []

    async def thief(peer: Peer) -> None:
        reached.append(await peer.request())

    async with raw_server(thief) as other:
        extra = f"location: {other.url}/\r\n"
        outcome = await once(client, answering(b"", status=307, extra=extra))
    assert outcome.kind is OutcomeClass.PERMANENT
    assert "baseURL" in outcome.message
    assert not reached


async def test_cancelled_connects_leave_the_pool_whole() -> None:
    """P36: many calls cancelled while connecting: the next one works."""
    client = ProviderClient(connect_seconds=5, request_seconds=5, stream_idle_seconds=1, pool=8)
    async with raw_server(answering(ANSWER)) as server:
        for _ in range(60):
            tasks = [asyncio.create_task(call(client, server.url)) for _ in range(40)]
            await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        assert (await call(client, server.url)).kind is OutcomeClass.SUCCESS
    await client.close()


async def test_a_full_local_pool_is_nobodys_fault() -> None:
    """P37: no connection free in time: nothing was sent."""
    client = ProviderClient(connect_seconds=0.2, request_seconds=3, stream_idle_seconds=1, pool=1)

    async def slow(peer: Peer) -> None:
        await peer.request()
        await asyncio.sleep(1.5)
        await peer.answer(ANSWER)

    async with raw_server(slow) as server:
        first = asyncio.create_task(call(client, server.url))
        await asyncio.sleep(0.1)
        second = await call(client, server.url)
        assert (second.kind, second.sent) == (OutcomeClass.TRANSIENT, False)
        assert (await first).kind is OutcomeClass.SUCCESS
    await client.close()


async def test_a_connection_closed_while_idle(client: ProviderClient) -> None:
    """P37: the server closed a kept connection: the next call takes a new one."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.answer(ANSWER)

    async with raw_server(script) as server:
        assert (await call(client, server.url)).kind is OutcomeClass.SUCCESS
        await asyncio.sleep(0.05)
        assert (await call(client, server.url)).kind is OutcomeClass.SUCCESS
        assert server.connections == 2


# ---------------------------------------------------------------- streams

STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"


def event(data: object) -> bytes:
    return f"data: {json.dumps(data)}\n\n".encode()


def chunk(text: str, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
    return event({"choices": [choice], "model": "m"})


async def test_stream(client: ProviderClient) -> None:
    usage = event({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}})
    data = STREAM_HEAD + chunk("he") + chunk("y", "stop") + usage + b"data: [DONE]\n\n"
    outcome = await once(client, sending(data), streaming=True)
    assert outcome.kind is OutcomeClass.SUCCESS
    assert outcome.usage
    assert outcome.usage.input_tokens == 3
    assert outcome.result
    assert json.loads(outcome.result)["choices"][0]["message"]["content"] == "hey"


async def test_cut_stream(client: ProviderClient) -> None:
    """P18: a stream without its end is UNKNOWN, with what was produced."""
    outcome = await once(client, sending(STREAM_HEAD + chunk("x" * 400)), streaming=True)
    assert outcome.kind is OutcomeClass.UNKNOWN
    assert outcome.usage
    assert (outcome.usage.output_tokens, outcome.usage.estimated) == (100, True)


async def test_stalled_stream(client: ProviderClient) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(STREAM_HEAD + chunk("x"))
        await asyncio.sleep(3)

    outcome = await once(client, script, streaming=True)
    assert outcome.kind is OutcomeClass.UNKNOWN


async def test_stream_error_event(client: ProviderClient) -> None:
    """P17: an overloaded error event after two deltas: OVERLOAD, partial usage charged."""
    start = event(
        {"type": "message_start", "message": {"usage": {"input_tokens": 9, "output_tokens": 1}}}
    )
    delta = event(
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "abcd"}}
    )
    error = event({"type": "error", "error": {"type": "overloaded_error", "message": "later"}})
    outcome = await once(
        client,
        sending(STREAM_HEAD + start + delta + delta + error),
        streaming=True,
        provider=ANTHROPIC,
    )
    assert outcome.kind is OutcomeClass.OVERLOAD
    assert outcome.usage
    assert (outcome.usage.input_tokens, outcome.usage.output_tokens) == (9, 2)
