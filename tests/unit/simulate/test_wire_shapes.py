"""Both wire shapes: what requests mean, headers, streams."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from llmqueue_cli.simulate.limiter import Refusal
from llmqueue_cli.simulate.limits import Dimension, Level
from llmqueue_cli.simulate.shapes.anthropic import AnthropicShape, rfc3339
from llmqueue_cli.simulate.shapes.openai import OpenAIShape, go_duration
from llmqueue_cli.simulate.shapes.port import Ask, BadRequest, Shape, Usage, estimate_tokens, pieces

SHAPES = [pytest.param(OpenAIShape(), id="openai"), pytest.param(AnthropicShape(), id="anthropic")]
HELLO = [{"role": "user", "content": "hello world!"}]
NOW = 1_796_018_422.25  # 2026-11-30 06:00:22.25 UTC


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.012, "12ms"),
        (0.0001, "1ms"),
        (1, "1s"),
        (1.5, "1.5s"),
        (59.9999, "1m0s"),
        (179.56, "2m59.56s"),
        (360, "6m0s"),
        (3600, "1h0m0s"),
        (86400.25, "24h0m0.25s"),
    ],
)
def test_go_durations_are_never_shorter(seconds: float, text: str) -> None:
    assert go_duration(seconds) == text


def test_an_rfc_3339_reset_is_never_earlier() -> None:
    assert rfc3339(NOW) == "2026-11-30T06:00:23Z"


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        ({"messages": HELLO, "max_tokens": 5}, "model"),
        ({"model": "m", "max_tokens": 5}, "messages"),
        ({"model": "m", "messages": [], "max_tokens": 5}, "messages"),
        ({"model": "m", "messages": HELLO, "max_tokens": 0}, "max_tokens"),
        ({"model": "m", "messages": HELLO, "max_tokens": True}, "max_tokens"),
        ({"model": "m", "messages": HELLO, "max_tokens": 5, "stream": "yes"}, "stream"),
    ],
)
def test_a_wrong_request_is_told_which_field(
    shape: Shape, document: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(BadRequest, match=complaint):
        shape.read(document)


def test_anthropic_needs_a_maximum_and_openai_does_not() -> None:
    document = {"model": "m", "messages": HELLO}
    assert OpenAIShape().read(document).max_output_tokens is None
    with pytest.raises(BadRequest, match="max_tokens: Field required"):
        AnthropicShape().read(document)


@pytest.mark.parametrize(
    ("fields", "most"),
    [
        ({"max_tokens": 7}, 7),
        ({"max_completion_tokens": 9, "max_tokens": 7}, 9),
        ({"max_tokens": 7, "n": 3}, 21),
    ],
)
def test_openais_maximum_is_for_all_choices(fields: dict[str, int], most: int) -> None:
    ask = OpenAIShape().read({"model": "m", "messages": HELLO, **fields})
    assert ask.max_output_tokens == most


def test_the_estimate_is_a_quarter_of_all_text() -> None:
    # 4 ("user") + 12 bytes; the second has 2 bytes a letter.
    assert OpenAIShape().read({"model": "m", "messages": HELLO}).input_tokens == 4
    assert estimate_tokens("ääää", [{"text": "x" * 9, "n": 3}], None) == math.ceil(17 / 4)


@pytest.mark.parametrize("count", [0, 1, 2, 19, 20, 21, 4096])
def test_pieces_add_up(count: int) -> None:
    found = list(pieces(count))
    assert sum(found) == count
    assert len(found) <= 20
    assert not count or min(found) >= 1


LEVELS = {
    Dimension.REQUESTS: Level(60, 12, 360.0),
    Dimension.TOKENS: Level(1000, 0, 0.012),
    Dimension.INPUT_TOKENS: Level(800, 700, 20.5),
}


def test_openais_limit_headers() -> None:
    assert OpenAIShape().limit_headers(LEVELS, wall=NOW) == [
        ("x-ratelimit-limit-requests", "60"),
        ("x-ratelimit-remaining-requests", "12"),
        ("x-ratelimit-reset-requests", "6m0s"),
        ("x-ratelimit-limit-tokens", "1000"),
        ("x-ratelimit-remaining-tokens", "0"),
        ("x-ratelimit-reset-tokens", "12ms"),
    ]


def test_anthropics_limit_headers() -> None:
    assert AnthropicShape().limit_headers(LEVELS, wall=NOW) == [
        ("anthropic-ratelimit-requests-limit", "60"),
        ("anthropic-ratelimit-requests-remaining", "12"),
        ("anthropic-ratelimit-requests-reset", "2026-11-30T06:06:23Z"),
        ("anthropic-ratelimit-tokens-limit", "1000"),
        ("anthropic-ratelimit-tokens-remaining", "0"),
        ("anthropic-ratelimit-tokens-reset", "2026-11-30T06:00:23Z"),
        ("anthropic-ratelimit-input-tokens-limit", "800"),
        ("anthropic-ratelimit-input-tokens-remaining", "700"),
        ("anthropic-ratelimit-input-tokens-reset", "2026-11-30T06:00:43Z"),
    ]


@pytest.mark.parametrize("shape", SHAPES)
def test_unlimited_means_no_headers(shape: Shape) -> None:
    assert shape.limit_headers({}, wall=NOW) == []


def test_waits_are_told_in_the_providers_headers() -> None:
    assert OpenAIShape().wait_headers(1.2301) == [("retry-after", "2"), ("retry-after-ms", "1231")]
    assert OpenAIShape().wait_headers(0.0) == [("retry-after", "1"), ("retry-after-ms", "1")]
    assert AnthropicShape().wait_headers(1.2301) == [("retry-after", "2")]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("wait", [12.0, math.inf], ids=["later", "never"])
def test_a_refusal_names_the_limit(shape: Shape, wait: float) -> None:
    refusal = Refusal(Dimension.TOKENS, 1000, 990, 50, wait)
    words, message = shape.refusal(refusal, Ask("m", 1, 50))
    assert words.status == 429
    assert "1000" in message
    assert "12s" in message or math.isinf(wait) or isinstance(shape, AnthropicShape)


def _events(shape: Shape, ask: Ask, usage: Usage, *, with_usage: bool = True) -> list[Any]:
    data = b"".join(p.data for p in shape.stream(ask, usage, "r", with_usage=with_usage))
    lines = [line[6:] for line in data.decode().split("\n") if line.startswith("data: ")]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


@pytest.mark.parametrize("shape", SHAPES)
def test_the_tokens_of_a_streams_pieces_are_those_of_its_usage(shape: Shape) -> None:
    deltas = list(shape.stream(Ask("m", 5, 99, True), Usage(5, 37), "r", with_usage=True))
    assert sum(delta.tokens for delta in deltas) == 37


def test_openais_usage_comes_last_without_choices_and_only_if_asked() -> None:
    """P20: the last chunk has usage and no choices."""
    *_, last, done = _events(OpenAIShape(), Ask("m", 5, 99, True, True), Usage(5, 7))
    assert done == "[DONE]"
    assert last["choices"] == []
    assert last["usage"]["prompt_tokens"] == 5
    assert last["usage"]["completion_tokens"] == 7
    for silent in (
        _events(OpenAIShape(), Ask("m", 5, 99, True, False), Usage(5, 7)),
        _events(OpenAIShape(), Ask("m", 5, 99, True, True), Usage(5, 7), with_usage=False),
    ):
        assert not any(event != "[DONE]" and event.get("usage") for event in silent)


def test_anthropics_usage_is_cumulative() -> None:
    events = _events(AnthropicShape(), Ask("m", 5, 99, True), Usage(5, 7, 11, 13))
    usage = events[0]["message"]["usage"]
    assert usage["input_tokens"] == 5
    assert usage["cache_read_input_tokens"] == 11
    assert usage["cache_creation_input_tokens"] == 13
    assert events[-2]["usage"]["output_tokens"] == 7
    assert [event["type"] for event in events[-3:]] == [
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]


def test_openais_prompt_includes_what_was_cached_and_anthropics_does_not() -> None:
    usage = Usage(5, 7, 11, 13)
    ask = Ask("m", 5, 99)
    openai = OpenAIShape().answer(ask, usage, "r")["usage"]
    assert (openai["prompt_tokens"], openai["prompt_tokens_details"]["cached_tokens"]) == (29, 11)
    assert AnthropicShape().answer(ask, usage, "r")["usage"]["input_tokens"] == 5
