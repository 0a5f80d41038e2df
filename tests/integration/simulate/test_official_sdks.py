"""The official SDKs take the simulated provider for the real one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import anthropic
import openai
import pytest

from llmqueue_cli.simulate.limits import Limits
from llmqueue_cli.simulate.options import ProviderOptions
from llmqueue_cli.simulate.provider import FakeProvider

MESSAGES: Any = [{"role": "user", "content": "hello"}]


def faulty(fault: str) -> Any:
    return [{"role": "user", "content": f"[[sim:fault={fault}]]"}]


@pytest.fixture
async def openai_sdk() -> AsyncIterator[tuple[openai.AsyncOpenAI, FakeProvider]]:
    async with FakeProvider(ProviderOptions(limits=Limits(100, 100_000))) as fake:
        base = fake.url + "/v1"
        async with openai.AsyncOpenAI(api_key="k", base_url=base, max_retries=0) as sdk:
            yield sdk, fake


@pytest.fixture
async def anthropic_sdk() -> AsyncIterator[tuple[anthropic.AsyncAnthropic, FakeProvider]]:
    options = ProviderOptions(shape="anthropic", limits=Limits(100, None, 100_000, 100_000))
    async with (
        FakeProvider(options) as fake,
        anthropic.AsyncAnthropic(api_key="k", base_url=fake.url, max_retries=0) as sdk,
    ):
        yield sdk, fake


OpenAISdk = tuple[openai.AsyncOpenAI, FakeProvider]
AnthropicSdk = tuple[anthropic.AsyncAnthropic, FakeProvider]


async def test_openai_completion(openai_sdk: OpenAISdk) -> None:
    sdk, _ = openai_sdk
    found = await sdk.chat.completions.create(
        model="gpt-4o-mini", messages=MESSAGES, max_completion_tokens=20
    )
    assert found.choices[0].message.content == "word " * 20
    assert found.choices[0].finish_reason == "stop"
    assert found.usage is not None
    assert found.usage.completion_tokens == 20
    assert found.usage.completion_tokens_details is not None
    assert found.usage.completion_tokens_details.reasoning_tokens == 0
    assert found._request_id is not None


async def test_openai_stream(openai_sdk: OpenAISdk) -> None:
    sdk, _ = openai_sdk
    stream = await sdk.chat.completions.create(
        model="gpt-4o-mini",
        messages=MESSAGES,
        max_completion_tokens=20,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = [chunk async for chunk in stream]
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == "word " * 20
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 20


async def test_openai_refusal(openai_sdk: OpenAISdk) -> None:
    sdk, fake = openai_sdk
    fake.set_limits(Limits(requests=0))
    with pytest.raises(openai.RateLimitError) as caught:
        await sdk.chat.completions.create(model="m", messages=MESSAGES)
    assert caught.value.code == "rate_limit_exceeded"
    assert caught.value.response.headers["x-ratelimit-limit-requests"] == "0"


async def test_openais_own_retry_waits_as_told(openai_sdk: OpenAISdk) -> None:
    sdk, fake = openai_sdk
    found = await sdk.with_options(max_retries=1).chat.completions.create(
        model="m", messages=faulty("rate429 retry_after_ms=50 times=1")
    )
    assert found.choices
    assert [each["status"] for each in fake.calls()] == [429, 200]


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("insufficient_quota", openai.RateLimitError),
        ("400", openai.BadRequestError),
        ("401", openai.AuthenticationError),
        ("403", openai.PermissionDeniedError),
        ("404", openai.NotFoundError),
        ("422", openai.UnprocessableEntityError),
        ("500", openai.InternalServerError),
        ("html_502", openai.InternalServerError),
        ("cut_body", openai.APIConnectionError),
        ("reset_after_reading", openai.APIConnectionError),
    ],
)
async def test_openai_errors(
    openai_sdk: OpenAISdk, fault: str, error: type[openai.APIError]
) -> None:
    sdk, _ = openai_sdk
    with pytest.raises(error):
        await sdk.chat.completions.create(model="m", messages=faulty(fault))


async def test_anthropic_message(anthropic_sdk: AnthropicSdk) -> None:
    sdk, _ = anthropic_sdk
    found = await sdk.messages.create(model="claude-haiku-4-5", messages=MESSAGES, max_tokens=20)
    assert found.content[0].type == "text"
    assert found.content[0].text == "word " * 20
    assert (found.stop_reason, found.usage.output_tokens) == ("end_turn", 20)
    assert found._request_id is not None


async def test_anthropic_stream(anthropic_sdk: AnthropicSdk) -> None:
    sdk, _ = anthropic_sdk
    async with sdk.messages.stream(
        model="claude-haiku-4-5", messages=MESSAGES, max_tokens=20
    ) as stream:
        text = "".join([piece async for piece in stream.text_stream])
        final = await stream.get_final_message()
    assert text == "word " * 20
    assert (final.stop_reason, final.usage.output_tokens) == ("end_turn", 20)


async def test_anthropic_refusal(anthropic_sdk: AnthropicSdk) -> None:
    sdk, fake = anthropic_sdk
    fake.set_limits(Limits(requests=1))
    await sdk.messages.create(model="m", messages=MESSAGES, max_tokens=5)
    with pytest.raises(anthropic.RateLimitError) as caught:
        await sdk.messages.create(model="m", messages=MESSAGES, max_tokens=5)
    headers = caught.value.response.headers
    assert 0 < int(headers["retry-after"]) <= 60
    assert headers["anthropic-ratelimit-requests-remaining"] == "0"


async def test_anthropic_error_event(anthropic_sdk: AnthropicSdk) -> None:
    """P17: an overloaded error in the midst of a stream."""
    sdk, _ = anthropic_sdk
    stream = await sdk.messages.create(
        model="m", messages=faulty("stream_error"), max_tokens=50, stream=True
    )
    kinds: list[str] = []
    with pytest.raises(anthropic.APIStatusError, match="Overloaded"):
        await _collect(stream, kinds)
    assert kinds.count("content_block_delta") == 2


async def _collect(stream: Any, kinds: list[str]) -> None:
    async for event in stream:
        kinds.append(event.type)  # noqa: PERF401 - what came before the error is wanted


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("spend_limit", anthropic.RateLimitError),
        ("401", anthropic.AuthenticationError),
        ("413", anthropic.APIStatusError),
        ("529", anthropic.APIStatusError),
        ("504", anthropic.APIStatusError),
        ("long_content_length", anthropic.APIConnectionError),
    ],
)
async def test_anthropic_errors(
    anthropic_sdk: AnthropicSdk, fault: str, error: type[anthropic.APIError]
) -> None:
    sdk, _ = anthropic_sdk
    with pytest.raises(error):
        await sdk.messages.create(model="m", messages=faulty(fault), max_tokens=5)
