"""The simulated provider over sockets: honest answers, its limits, its books."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import httpx2
import pytest

from llmqueue_cli.simulate.distribution import Constant
from llmqueue_cli.simulate.limits import Limits
from llmqueue_cli.simulate.options import ProviderOptions
from llmqueue_cli.simulate.provider import FakeProvider
from support.fakecalls import PATHS, body, call, until


@pytest.fixture
async def http() -> AsyncIterator[httpx2.AsyncClient]:
    limits = httpx2.Limits(max_connections=300)
    async with httpx2.AsyncClient(timeout=20, trust_env=False, limits=limits) as client:
        yield client


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/chat/completions"])
async def test_a_good_answer_in_openais_shape(http: httpx2.AsyncClient, path: str) -> None:
    async with FakeProvider(ProviderOptions(limits=Limits(60, 10_000))) as fake:
        answer = await http.post(fake.url + path, json=body())
    document = answer.json()
    assert answer.status_code == 200
    assert document["choices"][0]["message"]["content"] == "word " * 50
    assert document["usage"]["completion_tokens"] == 50
    assert document["model"] == "some-model"
    assert answer.headers["x-request-id"].startswith("req_")
    assert answer.headers["x-ratelimit-remaining-requests"] == "59"
    assert answer.headers["x-ratelimit-remaining-tokens"] == "9900"


async def test_a_good_answer_in_anthropics_shape(http: httpx2.AsyncClient) -> None:
    options = ProviderOptions(shape="anthropic", limits=Limits(60, None, 1000, 1000))
    async with FakeProvider(options) as fake:
        answer = await call(http, fake, "[[sim:input=300 cache_read=500 output=70]]")
    document = answer.json()
    assert document["content"][0]["text"] == "word " * 70
    assert document["usage"]["input_tokens"] == 300
    assert document["usage"]["cache_read_input_tokens"] == 500
    assert answer.headers["request-id"].startswith("req_")
    # As used, not as reserved; cache reads do not count.
    assert answer.headers["anthropic-ratelimit-input-tokens-remaining"] == "700"
    assert answer.headers["anthropic-ratelimit-output-tokens-remaining"] == "930"


async def test_a_refusal_says_honestly_when_to_come_back(http: httpx2.AsyncClient) -> None:
    options = ProviderOptions(limits=Limits(requests=2), window_seconds=1.0)
    async with FakeProvider(options) as fake:
        assert [(await call(http, fake)).status_code for _ in range(3)] == [200, 200, 429]
        refused = await call(http, fake)
        assert refused.json()["error"]["code"] == "rate_limit_exceeded"
        assert refused.headers["x-ratelimit-remaining-requests"] == "0"
        wait = int(refused.headers["retry-after-ms"]) / 1000
        assert 0 < wait <= 1
        await asyncio.sleep(wait)
        assert (await call(http, fake)).status_code == 200
        stats = fake.stats()
    assert (stats["calls"], stats["ok"], stats["answered_429"]) == (5, 3, 2)
    assert (stats["worst_60s"], stats["limit"], stats["injected_429"]) == (4, 2, 0)


async def test_an_anthropic_refusal_has_retry_after_and_reset(http: httpx2.AsyncClient) -> None:
    options = ProviderOptions(shape="anthropic", limits=Limits(requests=1))
    async with FakeProvider(options) as fake:
        await call(http, fake)
        refused = await call(http, fake)
    assert refused.status_code == 429
    assert refused.json()["error"]["type"] == "rate_limit_error"
    assert refused.headers["retry-after"] == "60"
    reset = datetime.fromisoformat(refused.headers["anthropic-ratelimit-requests-reset"])
    assert 58 < (reset - datetime.now(UTC)).total_seconds() < 62


async def test_a_call_above_the_token_limit_is_told_so_without_a_time(
    http: httpx2.AsyncClient,
) -> None:
    async with FakeProvider(ProviderOptions(limits=Limits(tokens=50))) as fake:
        refused = await call(http, fake)
    assert refused.status_code == 429
    assert "Request too large" in refused.json()["error"]["message"]
    assert "retry-after" not in refused.headers


@pytest.mark.parametrize("shape", ["openai", "anthropic"])
async def test_a_wrong_request_is_a_400_with_limits_that_counts(
    http: httpx2.AsyncClient, shape: Any
) -> None:
    async with FakeProvider(ProviderOptions(shape=shape, limits=Limits(requests=9))) as fake:
        missing = await http.post(fake.url + PATHS[shape], json={"model": "m"})
        garbage = await http.post(fake.url + PATHS[shape], content=b"{")
        unknown = await call(http, fake, "[[sim:fault=cut_bdy]]")
        stats = fake.stats()
    assert [each.status_code for each in (missing, garbage, unknown)] == [400, 400, 400]
    assert "unknown fault 'cut_bdy'" in unknown.json()["error"]["message"]
    assert any("ratelimit" in name for name in missing.headers)
    assert (stats["worst_60s"], stats["billed"]["calls"]) == (3, 0)


async def test_paths_of_the_other_shape_are_unknown(http: httpx2.AsyncClient) -> None:
    async with FakeProvider(ProviderOptions(shape="anthropic")) as fake:
        assert (await http.post(fake.url + PATHS["openai"], json=body())).status_code == 404
        assert (await http.get(fake.url + PATHS["anthropic"])).status_code == 404
        assert fake.stats()["calls"] == 0


async def test_two_hundred_calls_at_once(http: httpx2.AsyncClient) -> None:
    async with FakeProvider(ProviderOptions(latency=Constant(1.0))) as fake:
        answers = await asyncio.gather(
            *(call(http, fake, key=f"job{number}/1") for number in range(200))
        )
        stats = fake.stats()
    assert {each.status_code for each in answers} == {200}
    assert stats["max_in_flight"] == 200
    assert (stats["billed"]["jobs"], stats["billed_twice"], stats["in_flight"]) == (200, 0, 0)


async def test_limits_change_while_it_runs(http: httpx2.AsyncClient) -> None:
    async with FakeProvider(ProviderOptions()) as fake:
        await call(http, fake)
        changed = await http.post(fake.url + "/_sim/limits", json={"rpm": 1})
        assert changed.json()["requests"] == 1
        assert (await call(http, fake)).status_code == 429
        await http.post(fake.url + "/_sim/limits", json={"rpm": None})
        assert (await call(http, fake)).status_code == 200
        assert (await http.post(fake.url + "/_sim/limits", json={"rps": 1})).status_code == 400


async def test_the_books_can_be_read_and_reset(http: httpx2.AsyncClient) -> None:
    async with FakeProvider(ProviderOptions(limits=Limits(requests=9))) as fake:
        for key in ("a/1", "a/2", "b/1"):
            await call(http, fake, key=key)
        log = (await http.get(fake.url + "/_sim/calls?since=1")).json()
        assert [(each["number"], each["job"], each["status"]) for each in log] == [
            (1, "a", 200),
            (2, "b", 200),
        ]
        assert all(each["start"] <= each["end"] for each in log)
        assert (await http.get(fake.url + "/_sim/billed")).json() == {"a": 2, "b": 1}
        stats = (await http.get(fake.url + "/_sim/stats")).json()
        assert (stats["billed_twice"], stats["billed_twice_jobs"]) == (1, ["a"])
        await http.post(fake.url + "/_sim/reset")
        assert (await http.get(fake.url + "/_sim/stats")).json()["calls"] == 0
        answer = await call(http, fake)
        assert answer.headers["x-ratelimit-remaining-requests"] == "5"
        assert (await http.get(fake.url + "/_sim/nothing")).status_code == 404


async def test_a_client_request_id_stands_in_for_the_idempotency_key(
    http: httpx2.AsyncClient,
) -> None:
    async with FakeProvider(ProviderOptions()) as fake:
        headers = {"x-client-request-id": "job/1"}
        await http.post(fake.url + PATHS["openai"], json=body(), headers=headers)
        assert fake.billed() == {"job": 1}


async def test_work_is_billed_although_the_client_has_left(http: httpx2.AsyncClient) -> None:
    async with FakeProvider(ProviderOptions(latency=Constant(0.4))) as fake:
        with pytest.raises(httpx2.ReadTimeout):
            await http.post(
                fake.url + PATHS["openai"],
                json=body(),
                headers={"idempotency-key": "job/1"},
                timeout=0.1,
            )
        assert fake.billed() == {}
        await until(lambda: fake.billed() == {"job": 1})


async def test_a_stream_left_on_its_way_is_billed_in_full(http: httpx2.AsyncClient) -> None:
    options = ProviderOptions(latency=Constant(1.0), output_tokens=Constant(40))
    async with FakeProvider(options) as fake:
        url = fake.url + PATHS["openai"]
        async with http.stream("POST", url, json=body(stream=True)) as answer:
            await anext(answer.aiter_raw())
        await until(lambda: fake.stats()["billed"]["output_tokens"] == 40)


async def test_a_stream_takes_the_time_of_its_work(http: httpx2.AsyncClient) -> None:
    async with FakeProvider(ProviderOptions(latency=Constant(0.5))) as fake:
        started = asyncio.get_running_loop().time()
        answer = await call(http, fake, stream=True)
        elapsed = asyncio.get_running_loop().time() - started
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.text.endswith("data: [DONE]\n\n")
    assert elapsed >= 0.5


async def test_an_honoured_key_is_answered_again_without_a_bill(http: httpx2.AsyncClient) -> None:
    options = ProviderOptions(honour_idempotency=True, latency=Constant(0.2))
    async with FakeProvider(options) as fake:
        lost = await asyncio.gather(
            call(http, fake, "[[sim:fault=cut_body]]", key="a/1"), return_exceptions=True
        )
        assert isinstance(lost[0], httpx2.RemoteProtocolError)
        first, second = await asyncio.gather(*(call(http, fake, key="a/1") for _ in range(2)))
        assert first.json()["id"] == second.json()["id"]
        assert fake.billed() == {"a": 1}
        assert [each["replayed"] for each in fake.calls()] == [False, True, True]
        # The second of two at once waits for the first, rather than being worked on as well.
        await asyncio.gather(*(call(http, fake, key="b/1") for _ in range(2)))
        assert fake.billed() == {"a": 1, "b": 1}


async def test_a_key_is_not_honoured_unless_asked(http: httpx2.AsyncClient) -> None:
    async with FakeProvider(ProviderOptions()) as fake:
        for _ in range(2):
            await call(http, fake, key="a/1")
        assert fake.stats()["billed_twice"] == 1


async def test_expect_100_continue_and_kept_connections() -> None:
    async with FakeProvider(ProviderOptions()) as fake:
        host, port = fake.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        content = json.dumps(body()).encode()
        head = (
            "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\n"
            f"content-length: {len(content)}\r\n\r\n"
        ).encode()
        for _ in range(2):
            writer.write(head)
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            writer.write(content)
            answer = await reader.readuntil(b"\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
            length = int(answer.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
        writer.close()
        await writer.wait_closed()


async def test_what_is_no_http_is_told_so() -> None:
    async with FakeProvider(ProviderOptions()) as fake:
        host, port = fake.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"\x16\x03\x01 not http\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 400 Bad Request\r\n")
        writer.close()
        await writer.wait_closed()


async def test_an_idle_connection_is_closed_after_its_time() -> None:
    async with FakeProvider(ProviderOptions(idle_seconds=0.2)) as fake:
        host, port = fake.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        async with asyncio.timeout(5):
            assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize("shape", ["openai", "anthropic"])
async def test_a_provider_that_says_nothing_of_its_limits(
    http: httpx2.AsyncClient, shape: Any
) -> None:
    options = ProviderOptions(shape=shape, limits=Limits(requests=1), limit_headers=False)
    async with FakeProvider(options) as fake:
        good, refused = await call(http, fake), await call(http, fake)
    assert (good.status_code, refused.status_code) == (200, 429)
    assert not [name for each in (good, refused) for name in each.headers if "ratelimit" in name]
    assert "retry-after" in refused.headers
