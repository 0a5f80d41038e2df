"""Streams over real sockets: put together, cut, stalled, broken."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator

import pytest

from llmqueue.outcome import LimitHint, Usage
from llmqueue.providers.bodies import MAX_BODY_BYTES
from llmqueue.providers.http import ProviderClient
from llmqueue.providers.port import Provider
from llmqueue.states import OutcomeClass
from support.rawcalls import (
    ANSWER,
    ANTHROPIC,
    OPENAI,
    STREAM_HEAD,
    Script,
    answering,
    call,
    chunked,
    event,
    new_client,
    once,
    sending,
)
from support.rawserver import Peer, raw_server


@pytest.fixture
async def client() -> AsyncIterator[ProviderClient]:
    client = new_client()
    yield client
    await client.close()


def part(text: str, finish: str | None = None, index: int = 0) -> bytes:
    choice = {"index": index, "delta": {"content": text}, "finish_reason": finish}
    return event({"choices": [choice], "model": "m"})


USAGE = event({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}})
DONE = event("[DONE]")
QUESTION_TOKENS = 40 // 4 + 4
"""What the question of rawcalls is estimated at: its text and a message's overhead."""

START = event(
    {
        "type": "message_start",
        "message": {
            "type": "message",
            "model": "m",
            "usage": {"input_tokens": 9, "output_tokens": 1},
        },
    }
)
DELTA = event(
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "abcd"}}
)
END = event(
    {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn"},
        "usage": {"output_tokens": 2},
    }
)
STOP = event({"type": "message_stop"})

COMPLETE = {
    "usage-last": (OPENAI, [part("he"), part("y", "stop"), USAGE, DONE], Usage(3, 2)),
    "no-done": (OPENAI, [part("he"), part("y", "stop"), USAGE], Usage(3, 2)),
    "comments": (OPENAI, [b": wait\n\n", part("hey", "stop"), b":\n\n", USAGE, DONE], Usage(3, 2)),
    "crlf-and-bom": (
        OPENAI,
        [b"\xef\xbb\xbf", (part("hey", "stop") + USAGE + DONE).replace(b"\n", b"\r\n")],
        Usage(3, 2),
    ),
    "torn": (OPENAI, [bytes([b]) for b in part("hey", "stop") + USAGE + DONE], Usage(3, 2)),
    "no-usage": (
        OPENAI,
        [part("h" * 8), part("y", "stop"), DONE],
        Usage(QUESTION_TOKENS, 3, estimated=True),
    ),
    "anthropic": (ANTHROPIC, [START, DELTA, DELTA, END, STOP], Usage(9, 2)),
}


@pytest.mark.parametrize(("provider", "pieces", "usage"), COMPLETE.values(), ids=COMPLETE.keys())
async def test_complete_streams(
    client: ProviderClient, provider: Provider, pieces: list[bytes], usage: Usage
) -> None:
    """P20: the last chunk has no choices but the usage."""
    outcome = await once(client, sending(chunked(*pieces)), streaming=True, provider=provider)
    assert (outcome.kind, outcome.model) == (OutcomeClass.SUCCESS, "m")
    assert outcome.usage == usage
    assert outcome.result
    document = json.loads(outcome.result)
    text = (
        document["content"][0]["text"]
        if provider is ANTHROPIC
        else document["choices"][0]["message"]["content"]
    )
    assert text in ("hey", "hhhhhhhhy", "abcdabcd")


CUT = {
    "first-delta": (OPENAI, [part("x" * 400)], Usage(QUESTION_TOKENS, 100, estimated=True)),
    "nothing": (OPENAI, [], Usage(QUESTION_TOKENS, 0, estimated=True)),
    # One of two choices is complete, and nobody says how many there will be.
    "one-choice-of-two": (
        OPENAI,
        [part("x" * 40, "stop")],
        Usage(QUESTION_TOKENS, 10, estimated=True),
    ),
    "anthropic": (ANTHROPIC, [START, DELTA, DELTA], Usage(9, 2, estimated=True)),
    "anthropic-before-stop": (ANTHROPIC, [START, DELTA, END], Usage(9, 2, estimated=True)),
    "anthropic-nothing": (ANTHROPIC, [], Usage(QUESTION_TOKENS, 0, estimated=True)),
}


@pytest.mark.parametrize(("provider", "pieces", "usage"), CUT.values(), ids=CUT.keys())
async def test_cut_streams(
    client: ProviderClient, provider: Provider, pieces: list[bytes], usage: Usage
) -> None:
    """P18: a stream without its end is UNKNOWN, with what was produced."""
    data = chunked(*pieces, end=False)
    outcome = await once(client, sending(data), streaming=True, provider=provider)
    assert (outcome.kind, outcome.status, outcome.result) == (OutcomeClass.UNKNOWN, 200, None)
    assert outcome.usage == usage


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param([], id="nothing"),
        pytest.param([part("a")], id="no-reason"),
        pytest.param([part("a", "stop"), part("b", index=1)], id="second-choice-open"),
    ],
)
async def test_an_orderly_end_too_early(client: ProviderClient, pieces: list[bytes]) -> None:
    """P18: the body ends in order, the answer does not."""
    outcome = await once(client, sending(chunked(*pieces)), streaming=True)
    assert (outcome.kind, outcome.code) == (OutcomeClass.UNKNOWN, "cut_stream")


async def test_cut_after_its_end(client: ProviderClient) -> None:
    """All was said: a missing last chunk of the transport changes nothing."""
    data = chunked(part("hey", "stop"), USAGE, DONE, end=False)
    outcome = await once(client, sending(data), streaming=True)
    assert (outcome.kind, outcome.usage) == (OutcomeClass.SUCCESS, Usage(3, 2))


def holding(*pieces: bytes) -> Script:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(chunked(*pieces, end=False))
        await peer.reader.read(1)

    return script


async def test_stalled_stream(client: ProviderClient) -> None:
    """Too long a silence ends it, long before the call's time."""
    begun = asyncio.get_running_loop().time()
    outcome = await once(client, holding(part("x" * 8)), streaming=True)
    assert outcome.kind is OutcomeClass.UNKNOWN
    assert outcome.usage == Usage(QUESTION_TOKENS, 2, estimated=True)
    assert asyncio.get_running_loop().time() - begun < 2


async def test_endless_stream() -> None:
    """Pings don't prolong a call beyond its own time."""
    client = new_client(stream_idle_seconds=5.0)

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(chunked(part("x" * 8), end=False))
        while True:
            await peer.send(b"8\r\n: ping\n\n\r\n")
            await asyncio.sleep(0.02)

    outcome = await once(client, script, streaming=True, timeout_seconds=0.3)
    assert (outcome.kind, outcome.code) == (OutcomeClass.UNKNOWN, "TimeoutError")
    assert outcome.usage == Usage(QUESTION_TOKENS, 2, estimated=True)
    await client.close()


async def test_slow_first_event(client: ProviderClient) -> None:
    """Reasoning takes longer than any silence within a stream may."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await asyncio.sleep(0.5)  # stream_idle_seconds is 0.3
        await peer.send(chunked(part("hey", "stop"), USAGE, DONE))

    assert (await once(client, script, streaming=True)).kind is OutcomeClass.SUCCESS


async def test_a_stream_that_stays_open(client: ProviderClient) -> None:
    """Complete, but the server does not close: the answer does not wait for it."""
    outcome = await once(client, holding(part("hey", "stop"), USAGE, DONE), streaming=True)
    assert (outcome.kind, outcome.usage) == (OutcomeClass.SUCCESS, Usage(3, 2))


async def test_a_finished_stream_keeps_its_connection(client: ProviderClient) -> None:
    async def script(peer: Peer) -> None:
        while True:
            await peer.request()
            await peer.send(chunked(part("hey", "stop"), USAGE, DONE))

    async with raw_server(script) as server:
        for _ in range(3):
            outcome = await call(client, server.url, streaming=True)
            assert outcome.kind is OutcomeClass.SUCCESS
        assert server.connections == 1


ERRORS = {
    "anthropic-overloaded": (
        ANTHROPIC,
        [START, DELTA, DELTA,
         event({"type": "error", "error": {"type": "overloaded_error", "message": "m"}}, "error")],
        OutcomeClass.OVERLOAD,
        Usage(9, 2, estimated=True),
    ),
    "openai-rate": (
        OPENAI,
        [part("x" * 8), event({"error": {"code": "rate_limit_exceeded", "message": "m"}})],
        OutcomeClass.RATE,
        Usage(QUESTION_TOKENS, 2, estimated=True),
    ),
    "openrouter-number": (
        OPENAI,
        [event({"error": {"code": 502, "message": "m"}, "choices": []})],
        OutcomeClass.TRANSIENT,
        Usage(QUESTION_TOKENS, 0, estimated=True),
    ),
    "unknown-code": (
        OPENAI,
        [part("x" * 8), event({"error": {"message": "m"}})],
        OutcomeClass.MALFORMED,
        Usage(QUESTION_TOKENS, 2, estimated=True),
    ),
    "no-json": (
        OPENAI,
        [part("x" * 8), event("<html>")],
        OutcomeClass.MALFORMED,
        Usage(QUESTION_TOKENS, 2, estimated=True),
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("provider", "pieces", "kind", "usage"), ERRORS.values(), ids=ERRORS.keys()
)
async def test_error_events(
    client: ProviderClient,
    provider: Provider,
    pieces: list[bytes],
    kind: OutcomeClass,
    usage: Usage,
) -> None:
    """P17: start, two deltas, an error event, close: classified by its code, partial usage kept."""
    outcome = await once(client, sending(chunked(*pieces)), streaming=True, provider=provider)
    assert (outcome.kind, outcome.sent, outcome.usage) == (kind, True, usage)


async def test_limits_and_names_of_a_cut_stream(client: ProviderClient) -> None:
    head = b"x-request-id: r-1\r\nx-ratelimit-limit-requests: 60\r\n"
    data = chunked(part("x"), end=False).replace(b"\r\n\r\n", b"\r\n" + head + b"\r\n", 1)
    outcome = await once(client, sending(data), streaming=True)
    assert outcome.kind is OutcomeClass.UNKNOWN
    assert (outcome.request_id, outcome.limits) == ("r-1", (LimitHint("requests", 60),))


async def test_a_server_that_does_not_stream(client: ProviderClient) -> None:
    outcome = await once(client, answering(ANSWER), streaming=True)
    assert (outcome.kind, outcome.result) == (OutcomeClass.SUCCESS, ANSWER)


async def test_errors_before_the_stream(client: ProviderClient) -> None:
    body = b'{"error": {"code": "rate_limit_exceeded"}}'
    outcome = await once(client, answering(body, status=429), streaming=True)
    assert outcome.kind is OutcomeClass.RATE


async def test_a_compressed_stream(client: ProviderClient) -> None:
    body = gzip.compress(part("hey", "stop") + USAGE + DONE)
    data = STREAM_HEAD + b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(body) + body
    outcome = await once(client, sending(data), streaming=True)
    assert (outcome.kind, outcome.usage) == (OutcomeClass.SUCCESS, Usage(3, 2))


async def test_a_stream_above_all_bounds(client: ProviderClient) -> None:
    """P21: one endless line: an outcome, in linear time."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(STREAM_HEAD + b"\r\ndata: ")
        for _ in range(MAX_BODY_BYTES // 65536 + 2):
            await peer.send(b"x" * 65536)

    outcome = await once(client, script, streaming=True)
    assert (outcome.kind, outcome.code) == (OutcomeClass.UNKNOWN, "Unreadable")
