"""Misbehaving connections and streams, byte by byte."""

from __future__ import annotations

import asyncio
import json
import zlib

import httpx2
import pytest

from llmqueue_cli.simulate.provider import FakeProvider
from llmqueue_cli.simulate.schedule import parse_script
from support.fakecalls import OPENAI, body, faulty, head_of, raw, until


async def test_half_a_body(fake: FakeProvider) -> None:
    """P18: as long as promised it is not."""
    status, headers, rest = head_of(await raw(fake, "cut_body"))
    assert status == 200
    assert len(rest) == int(headers["content-length"]) // 2
    assert fake.billed() == {"job": 1}


async def test_a_content_length_that_is_too_large(fake: FakeProvider) -> None:
    """P18: all of the body comes, and a thousand bytes never do."""
    _, headers, rest = head_of(await raw(fake, "long_content_length"))
    assert json.loads(rest)["object"] == "chat.completion"
    assert len(rest) == int(headers["content-length"]) - 1000


@pytest.mark.parametrize(
    ("fault", "bills"),
    [("reset_before_reading", 0), ("reset_after_reading", 0), ("reset_after_billing", 1)],
)
async def test_resets(fake: FakeProvider, fault: str, bills: int) -> None:
    with pytest.raises(ConnectionResetError):
        await raw(fake, fault)
    stats = fake.stats()
    assert (stats["calls"], stats["billed"]["calls"]) == (1, bills)
    assert stats["by_status"] == {}


async def test_a_reset_while_the_body_is_still_on_its_way(fake: FakeProvider) -> None:
    fake.set_faults(parse_script('{"fault": "reset_before_reading"}'))
    host, port = fake.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"POST {OPENAI} HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n".encode())
    with pytest.raises(ConnectionResetError):
        async with asyncio.timeout(10):
            await reader.read()
    writer.transport.abort()
    assert fake.stats()["injected"] == {"reset_before_reading": 1}


async def test_a_call_that_is_never_answered_is_billed(fake: FakeProvider) -> None:
    """P23: the provider bills and says nothing; the call is over when the client leaves."""
    asking = asyncio.create_task(raw(fake, "never_answer"))
    await until(lambda: fake.billed() == {"job": 1})
    assert fake.stats()["in_flight"] == 1
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    await until(lambda: fake.stats()["in_flight"] == 0)
    assert fake.stats()["by_status"] == {}


async def test_a_body_that_stalls(http: httpx2.AsyncClient, fake: FakeProvider) -> None:
    with pytest.raises(httpx2.ReadTimeout):
        await http.post(fake.url + OPENAI, json=body("[[sim:fault=stalled_body]]"), timeout=0.5)


async def test_a_gzip_bomb_is_small_until_it_is_opened(
    http: httpx2.AsyncClient, fake: FakeProvider
) -> None:
    content = body("[[sim:fault=gzip_bomb size=30000000]]")
    async with http.stream("POST", fake.url + OPENAI, json=content) as answer:
        packed = b"".join([chunk async for chunk in answer.aiter_raw()])
    assert answer.headers["content-encoding"] == "gzip"
    assert len(packed) < 300_000
    assert len(zlib.decompress(packed, wbits=31)) == 30_000_000


async def test_a_huge_body_is_as_long_as_it_says(fake: FakeProvider) -> None:
    _, headers, rest = head_of(await raw(fake, "huge_body size=3000000"))
    assert int(headers["content-length"]) == len(rest) == 3_000_000
    assert len(json.loads(rest)["filler"]) == 3_000_000 - len('{"filler": ""}')


async def test_a_huge_header_line(fake: FakeProvider) -> None:
    _, headers, _ = head_of(await raw(fake, "huge_header"))
    assert len(headers["x-filler"]) == 1024 * 1024


async def test_a_cut_stream_ends_in_the_midst_after_two_deltas(fake: FakeProvider) -> None:
    answer = await raw(fake, "cut_stream", stream=True)
    assert answer.count(b'"content": "word') == 2
    assert b"[DONE]" not in answer
    assert not answer.endswith(b"0\r\n\r\n")
    assert 0 < fake.stats()["billed"]["output_tokens"] < 50


async def test_an_error_event_in_a_stream(
    http: httpx2.AsyncClient, anthropic: FakeProvider, fake: FakeProvider
) -> None:
    """P17: start, two deltas, an error event, the end."""
    text = (await faulty(http, anthropic, "stream_error", stream=True)).text
    assert text.count("content_block_delta") == 4  # event line and data
    assert text.rstrip().split("\n")[-2] == "event: error"
    assert json.loads(text.rstrip().split("data: ")[-1])["error"]["type"] == "overloaded_error"
    assert 0 < anthropic.stats()["billed"]["output_tokens"] < 50
    text = (await faulty(http, fake, "stream_error deltas=3", stream=True)).text
    assert text.count('"content": "word') == 3
    assert json.loads(text.rstrip().split("data: ")[-1])["error"]["code"] == "overloaded"


async def _read_all(answer: httpx2.Response, seen: list[bytes]) -> None:
    async for chunk in answer.aiter_raw():
        seen.append(chunk)  # noqa: PERF401 - what came before the error is wanted


async def test_a_stream_that_stalls(http: httpx2.AsyncClient, fake: FakeProvider) -> None:
    seen: list[bytes] = []
    content = body("[[sim:fault=stalled_stream]]", stream=True)
    async with http.stream("POST", fake.url + OPENAI, json=content, timeout=0.5) as answer:
        with pytest.raises(httpx2.ReadTimeout):
            await _read_all(answer, seen)
    assert b"".join(seen).count(b'"content": "word') == 2


async def test_stream_faults_without_a_stream(http: httpx2.AsyncClient, fake: FakeProvider) -> None:
    _, headers, rest = head_of(await raw(fake, "cut_stream"))
    assert len(rest) == int(headers["content-length"]) // 2
    answer = await faulty(http, fake, "stream_error")
    assert (answer.status_code, answer.json()["error"]["code"]) == (200, "overloaded")
    assert fake.stats()["injected"] == {"cut_stream": 1, "stream_error": 1}


async def test_a_kept_connection_is_closed_unannounced(
    http: httpx2.AsyncClient, fake: FakeProvider
) -> None:
    """P37: the answer promises to keep the connection, then it closes."""
    answer = await raw(fake, "close_idle")
    status, headers, rest = head_of(answer)
    assert status == 200
    assert len(rest) == int(headers["content-length"])
    assert "connection" not in headers
