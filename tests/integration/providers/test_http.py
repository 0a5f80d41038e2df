"""Answers over real sockets: an outcome for whatever a server does."""

from __future__ import annotations

import gzip
import resource
import zlib
from collections.abc import AsyncIterator

import pytest

from llmqueue.outcome import LimitHint, Usage
from llmqueue.providers.bodies import MAX_BODY_BYTES
from llmqueue.providers.http import ProviderClient
from llmqueue.states import OutcomeClass, Severity
from support.rawcalls import ANSWER, answering, new_client, once, sending
from support.rawserver import Peer, raw_server


@pytest.fixture
async def client() -> AsyncIterator[ProviderClient]:
    client = new_client()
    yield client
    await client.close()


async def test_an_answer(client: ProviderClient) -> None:
    outcome = await once(client, answering(ANSWER))
    assert (outcome.kind, outcome.sent, outcome.result) == (OutcomeClass.SUCCESS, True, ANSWER)


async def test_reset_after_sending_is_unknown(client: ProviderClient) -> None:
    """P24: the bytes left, then a reset: it may be billed."""

    async def script(peer: Peer) -> None:
        await peer.request()
        peer.reset()

    outcome = await once(client, script)
    assert (outcome.kind, outcome.sent) == (OutcomeClass.UNKNOWN, True)
    assert outcome.code != "stale_connection"  # it was a new one


async def test_read_timeout_is_unknown(client: ProviderClient) -> None:
    """P23: the provider took it and never answers."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.reader.read(1)

    outcome = await once(client, script, timeout_seconds=0.3)
    assert outcome.kind is OutcomeClass.UNKNOWN


BROKEN = {
    # P18, P21
    "cut-body": b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n" + ANSWER[:20],
    "half-without-length": b"HTTP/1.1 200 OK\r\n\r\n" + ANSWER[:60],
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
    assert (outcome.kind, outcome.severity) == (OutcomeClass.AUTH, Severity.CRITICAL)
    assert "baseURL" in outcome.message
    assert not reached


# P21: the status of an error counts, whatever is wrong with its body.
RUDE = {
    "cut": b"HTTP/1.1 429 X\r\nretry-after: 7\r\ncontent-length: 500\r\n\r\n{",
    "odd-encoding": b"HTTP/1.1 429 X\r\nretry-after: 7\r\ncontent-encoding: br\r\n"
    b"content-length: 3\r\n\r\nabc",
    "bad-gzip": b"HTTP/1.1 429 X\r\nretry-after: 7\r\ncontent-encoding: gzip\r\n"
    b"content-length: 3\r\n\r\nabc",
    "non-utf8": b"HTTP/1.1 429 X\r\nretry-after: 7\r\ncontent-length: 2\r\n\r\n\xff\xfe",
    "http-1.0": b"HTTP/1.0 429 X\r\nretry-after: 7\r\n\r\n<html>",
}


@pytest.mark.parametrize("data", RUDE.values(), ids=RUDE.keys())
async def test_errors_with_broken_bodies_keep_their_class(
    client: ProviderClient, data: bytes
) -> None:
    """P12, P21: a 429 is a 429: no attempt used, nobody sent to review."""
    outcome = await once(client, sending(data))
    assert (outcome.kind, outcome.retry_after_seconds) == (OutcomeClass.RATE, 7)


async def test_an_error_flood_is_cut(client: ProviderClient) -> None:
    """P21: 100 MB of error page: its class, soon."""

    async def flood(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 503 X\r\ncontent-length: 100000000\r\n\r\n")
        for _ in range(1600):
            await peer.send(bytes(65536))

    assert (await once(client, flood)).kind is OutcomeClass.TRANSIENT


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(ANSWER.replace(b"hi", b"\\ud800"), id="lone-surrogate"),
        pytest.param(b"\xef\xbb\xbf" + ANSWER, id="bom"),
        pytest.param(b"\n\n  \n" + ANSWER, id="blank-lines"),
    ],
)
async def test_odd_answers_are_kept_as_they_came(client: ProviderClient, body: bytes) -> None:
    """P21."""
    outcome = await once(client, answering(body))
    assert (outcome.kind, outcome.result) == (OutcomeClass.SUCCESS, body)


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        pytest.param(201, ANSWER, OutcomeClass.SUCCESS, id="created"),
        pytest.param(204, b"", OutcomeClass.MALFORMED, id="no-content"),
        pytest.param(200, b"<html>", OutcomeClass.MALFORMED, id="html-typed-as-json"),
        pytest.param(502, b"<html>", OutcomeClass.TRANSIENT, id="bad-gateway"),
    ],
)
async def test_statuses(
    client: ProviderClient, status: int, body: bytes, kind: OutcomeClass
) -> None:
    """P19."""
    assert (await once(client, answering(body, status=status))).kind is kind


async def test_missing_usage_is_estimated_from_what_was_sent(client: ProviderClient) -> None:
    """P6: neither side of it is 0."""
    outcome = await once(client, answering(b'{"choices": [{"message": {"content": "12345678"}}]}'))
    assert outcome.usage == Usage(14, 2, estimated=True)


async def test_limits_come_with_every_answer(client: ProviderClient) -> None:
    extra = "x-ratelimit-limit-requests: 60\r\nx-ratelimit-remaining-requests: 59\r\n"
    for status in (200, 400, 429, 500):
        outcome = await once(client, answering(ANSWER, status=status, extra=extra))
        assert outcome.limits == (LimitHint("requests", 60, 59),)
