"""Wrong answers as a client sees them: statuses, Retry-After, bodies."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx2
import pytest

from llmqueue_cli.simulate.catalogue import ERROR_ANSWERS
from llmqueue_cli.simulate.limits import Limits
from llmqueue_cli.simulate.options import ProviderOptions
from llmqueue_cli.simulate.provider import FakeProvider
from support.fakecalls import OPENAI, body, faulty


@pytest.mark.parametrize("name", sorted(ERROR_ANSWERS))
@pytest.mark.parametrize("shape", ["openai", "anthropic"])
async def test_error_answers(http: httpx2.AsyncClient, shape: Any, name: str) -> None:
    words = ERROR_ANSWERS[name]
    async with FakeProvider(ProviderOptions(shape=shape)) as fake:
        answer = await faulty(http, fake, f"{name} after=0")
        stats = fake.stats()
    assert answer.status_code == words.status
    if words.html:
        assert answer.headers["content-type"] == "text/html"
        assert answer.text.startswith("<!DOCTYPE html>")
    elif shape == "openai":
        kind, code = words.openai
        assert (answer.json()["error"]["type"], answer.json()["error"]["code"]) == (kind, code)
    else:
        assert answer.json()["type"] == "error"
        assert answer.json()["error"]["type"] == words.anthropic
    assert stats["billed"]["calls"] == int(words.worked)
    assert stats["injected"] == {name: 1}
    assert stats["injected_429"] == int(words.status == 429)
    assert stats["answered_429"] == 0


async def test_a_spend_limit_says_until_when_and_nothing_in_headers(
    http: httpx2.AsyncClient, anthropic: FakeProvider
) -> None:
    """P15: 429, an error code, a date in words, no Retry-After."""
    answer = await faulty(http, anthropic, "spend_limit regain=2027-01-01")
    error = answer.json()["error"]
    assert error["details"]["error_code"] == "enforced_spend_limit_reached"
    assert error["message"].endswith("You will regain access on 2027-01-01 at 00:00 UTC.")
    assert "retry-after" not in answer.headers


@pytest.mark.parametrize(
    ("asked", "headers"),
    [
        ("retry_after=-5", {"retry-after": "-5"}),
        ("retry_after=empty", {"retry-after": ""}),
        ("retry_after=1m30s", {"retry-after": "1m30s"}),
        ("retry_after_ms=1500", {"retry-after-ms": "1500"}),
        ("retry_after=none", {}),
    ],
)
async def test_forms_of_retry_after(
    http: httpx2.AsyncClient, fake: FakeProvider, asked: str, headers: dict[str, str]
) -> None:
    """P9: each form of Retry-After reaches the client as it is."""
    answer = await faulty(http, fake, f"rate429 {asked}")
    found = {name: value for name, value in answer.headers.items() if "retry-after" in name}
    assert found == headers


async def test_a_fault_befalls_a_job_so_often_and_then_no_more(
    http: httpx2.AsyncClient, fake: FakeProvider
) -> None:
    """P16: 529 three times, then 200."""
    statuses = [(await faulty(http, fake, "529 times=3")).status_code for _ in range(4)]
    assert statuses == [529, 529, 529, 200]


async def test_a_header_asks_as_well(http: httpx2.AsyncClient, fake: FakeProvider) -> None:
    headers = {"x-sim-fault": "rate429 retry_after=7"}
    answer = await http.post(fake.url + OPENAI, json=body(), headers=headers)
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "7")


async def test_a_late_answer_takes_its_time_and_may_bill(
    http: httpx2.AsyncClient, fake: FakeProvider
) -> None:
    loop = asyncio.get_running_loop()
    started = loop.time()
    assert (await faulty(http, fake, "502 after=0.3")).status_code == 502
    assert loop.time() - started >= 0.3
    assert fake.billed() == {}
    await faulty(http, fake, "502 billed=true")
    assert fake.billed() == {"job": 1}
    await faulty(http, fake, "504 billed=false")
    assert fake.billed() == {"job": 1}


@pytest.mark.parametrize(
    ("fault", "kind", "start"),
    [
        ("html_200", "text/html; charset=utf-8", b"<!DOCTYPE html>"),
        ("html_as_json", "application/json", b"<!DOCTYPE html>"),
        ("empty_200", "application/json", b""),
        ("bom", "application/json", b"\xef\xbb\xbf{"),
        ("blank_lines", "application/json", b"\n\n\n{"),
    ],
)
async def test_bodies_that_begin_wrong(
    http: httpx2.AsyncClient, fake: FakeProvider, fault: str, kind: str, start: bytes
) -> None:
    answer = await faulty(http, fake, fault)
    assert (answer.status_code, answer.headers["content-type"]) == (200, kind)
    assert answer.content.startswith(start)
    assert bool(answer.content) is bool(start)
    assert fake.billed() == {"job": 1}


async def test_bodies_that_lack_something(
    http: httpx2.AsyncClient, fake: FakeProvider, anthropic: FakeProvider
) -> None:
    assert (await faulty(http, fake, "choices_null")).json()["choices"] is None
    assert (await faulty(http, anthropic, "choices_null")).json()["content"] is None
    assert "usage" not in (await faulty(http, fake, "missing_usage")).json()
    assert (await faulty(http, fake, "usage_input_output")).json()["usage"] == {
        "input_tokens": 9,
        "output_tokens": 50,
    }
    streamed = await faulty(
        http, fake, "missing_usage", stream=True, stream_options={"include_usage": True}
    )
    assert '"completion_tokens"' not in streamed.text
    assert streamed.text.endswith("data: [DONE]\n\n")


async def test_an_error_inside_a_200_is_not_billed(
    http: httpx2.AsyncClient, fake: FakeProvider
) -> None:
    answer = await faulty(http, fake, "error_in_200 code=rate429")
    assert (answer.status_code, answer.json()["error"]["code"]) == (200, "rate_limit_exceeded")
    assert fake.billed() == {}


async def test_text_that_is_no_text(http: httpx2.AsyncClient, fake: FakeProvider) -> None:
    answer = await faulty(http, fake, "non_utf8")
    with pytest.raises(UnicodeDecodeError):
        answer.content.decode()
    answer = await faulty(http, fake, "lone_surrogate")
    assert "\ud83d" in json.loads(answer.content)["choices"][0]["message"]["content"]


async def test_negative_headers(http: httpx2.AsyncClient) -> None:
    """P10: limit −1, remaining −1, reset 0, in place of the true ones."""
    async with FakeProvider(ProviderOptions(limits=Limits(60, 6000))) as fake:
        headers = (await faulty(http, fake, "negative_headers")).headers
    for unit in ("requests", "tokens"):
        assert headers.get_list(f"x-ratelimit-limit-{unit}") == ["-1"]
        assert headers.get_list(f"x-ratelimit-remaining-{unit}") == ["-1"]
        assert headers.get_list(f"x-ratelimit-reset-{unit}") == ["0"]


async def test_a_redirect_names_another_host(
    http: httpx2.AsyncClient, fake: FakeProvider, anthropic: FakeProvider
) -> None:
    answer = await faulty(http, fake, f"redirect_307 location={anthropic.url}/v1/messages")
    assert answer.status_code == 307
    assert answer.headers["location"] == f"{anthropic.url}/v1/messages"
    assert fake.billed() == {}
