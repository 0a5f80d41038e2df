"""Usage, headers, requests and estimates of both protocols."""

from __future__ import annotations

import json
from typing import Any

import pytest

from llmqueue.errors import InvalidJob
from llmqueue.outcome import LimitHint, Usage
from llmqueue.providers.headers import anthropic_hints, openai_hints
from llmqueue.providers.port import Endpoint
from llmqueue.providers.registry import get_provider
from llmqueue.providers.sse import SseDecoder, SseEvent
from llmqueue.states import OutcomeClass, ProviderType

NOW = 1_796_000_000.0
OPENAI, ANTHROPIC = get_provider(ProviderType.OPENAI), get_provider(ProviderType.ANTHROPIC)
COMPATIBLE = get_provider(ProviderType.OPENAI_COMPATIBLE)
HELLO = [{"role": "user", "content": "hello"}]


def openai_answer(**fields: Any) -> bytes:
    choice = {"index": 0, "message": {"content": "hi"}}
    return json.dumps({"choices": [choice], "model": "m", **fields}).encode()


USAGES = {
    "chat": (
        {"prompt_tokens": 500, "completion_tokens": 500,
         "completion_tokens_details": {"reasoning_tokens": 200}},
        Usage(500, 500, reasoning_tokens=200),
    ),
    "responses": (
        {"input_tokens": 12, "output_tokens": 3, "input_tokens_details": {"cached_tokens": 5}},
        Usage(12, 3, cached_tokens=5),
    ),
    "deepseek": (
        {"prompt_tokens": 100, "completion_tokens": 1, "prompt_cache_hit_tokens": 64},
        Usage(100, 1, cached_tokens=64),
    ),
    "explicit-zero": ({"prompt_tokens": 0, "completion_tokens": 0}, Usage(0, 0)),
}  # fmt: skip


@pytest.mark.parametrize(("usage", "expected"), USAGES.values(), ids=USAGES.keys())
def test_openai_usage(usage: dict[str, Any], expected: Usage) -> None:
    """P6, P29: both shapes; reasoning is inside the output."""
    outcome = OPENAI.parse(200, {}, openai_answer(usage=usage), elapsed_seconds=1, now=NOW)
    assert outcome.kind is OutcomeClass.SUCCESS
    assert outcome.usage == expected


@pytest.mark.parametrize("usage", [None, {}, {"prompt_tokens": -1, "completion_tokens": 2}])
def test_missing_usage_is_an_estimate(usage: Any) -> None:
    """P6: missing is an estimate, not 0."""
    outcome = OPENAI.parse(200, {}, openai_answer(usage=usage), elapsed_seconds=1, now=NOW)
    assert outcome.usage
    assert outcome.usage.estimated
    assert outcome.usage.output_tokens > 0


def test_blank_lines_and_bom_before_the_json() -> None:
    """P21: blank lines keep a connection alive; a BOM is no content."""
    for start in (b"\n\n\n  ", b"\xef\xbb\xbf"):
        outcome = OPENAI.parse(200, {}, start + openai_answer(), elapsed_seconds=1, now=NOW)
        assert outcome.kind is OutcomeClass.SUCCESS


def test_anthropic_usage_adds_the_cache() -> None:
    """P28: input_tokens excludes cache writes and reads; the total is the three."""
    body = json.dumps(
        {
            "type": "message",
            "content": [{"type": "text", "text": "x"}],
            "model": "claude-sonnet-4-0",
            "usage": {
                "input_tokens": 3,
                "cache_creation_input_tokens": 12_304,
                "cache_read_input_tokens": 10,
                "output_tokens": 550,
            },
        }
    ).encode()
    outcome = ANTHROPIC.parse(200, {}, body, elapsed_seconds=1, now=NOW)
    assert outcome.usage == Usage(12_317, 550, cached_tokens=10, cache_write_tokens=12_304)


def test_openai_headers() -> None:
    headers = {
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-requests": "0",
        "x-ratelimit-reset-requests": "6m0s",
        "x-ratelimit-limit-tokens": "1000",
        "x-ratelimit-remaining-tokens": "900",
        "x-ratelimit-reset-tokens": "12ms",
    }
    assert openai_hints(headers, now=NOW) == (
        LimitHint("requests", 60, 0, 360.0),
        LimitHint("tokens", 1000, 900, 0.012),
    )


@pytest.mark.parametrize(
    "headers",
    [
        {"x-ratelimit-limit-tokens": "-1", "x-ratelimit-remaining-tokens": "-1"},
        {"x-ratelimit-limit-tokens": "10", "x-ratelimit-remaining-tokens": "-3"},
    ],
)
def test_negative_headers_are_ignored(headers: dict[str, str]) -> None:
    """P10."""
    assert openai_hints({**headers, "x-ratelimit-reset-tokens": "0"}, now=NOW) == ()


def test_anthropic_headers() -> None:
    headers = {
        "anthropic-ratelimit-input-tokens-limit": "50000",
        "anthropic-ratelimit-input-tokens-remaining": "0",
        "anthropic-ratelimit-input-tokens-reset": "2026-11-30T00:53:40Z",
        "anthropic-ratelimit-requests-limit": "nonsense",
        "anthropic-ratelimit-output-tokens-reset": "yesterday",
    }
    hints = {hint.unit: hint for hint in anthropic_hints(headers, now=NOW)}
    assert hints["input_tokens"].limit == 50_000
    assert hints["input_tokens"].reset_seconds == pytest.approx(20)
    assert hints["requests"] == LimitHint("requests")
    assert hints["output_tokens"].reset_seconds is None


RESETS = {
    "azure-whole-seconds": ("17", 17.0),
    "groq": ("2m59.56s", 179.56),
    "openrouter-epoch-milliseconds": (str(int((NOW + 30) * 1000)), 30.0),
    "epoch-seconds": (str(int(NOW + 30)), 30.0),
    "past-epoch": (str(int(NOW - 30)), 0.0),
    "rfc3339": ("2026-11-30T00:53:40Z", 20.0),
    "rfc3339-past": ("2026-11-30T00:53:00+00:00", 0.0),
    "without-zone": ("2026-11-30T00:53:40", None),
    "negative": ("-5", None),
    "words": ("soon", None),
}


@pytest.mark.parametrize(("text", "seconds"), RESETS.values(), ids=RESETS.keys())
def test_resets(text: str, seconds: float | None) -> None:
    """Seconds until full again, in every provider's way of saying it."""
    headers = {"x-ratelimit-limit-requests": "20", "x-ratelimit-reset-requests": text}
    expected = None if seconds is None else pytest.approx(seconds)
    assert openai_hints(headers, now=NOW)[0].reset_seconds == expected


# ---------------------------------------------------------------- requests


def test_openai_request() -> None:
    request = OPENAI.request(
        {"model": "m", "messages": HELLO, "stream": True},
        Endpoint("https://x/v1/", "k"),
        job_id="J",
        call=1,
        max_output_tokens=7,
    )
    body = json.loads(request.body)
    assert request.url == "https://x/v1/chat/completions"
    assert request.headers["authorization"] == "Bearer k"
    assert request.headers["idempotency-key"] == "J/1"
    assert request.headers["x-client-request-id"] == "J/1"
    assert body["max_completion_tokens"] == 7
    assert body["stream_options"] == {"include_usage": True}
    assert "secret" not in repr(Endpoint("https://x", "secret"))


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"max_tokens": 3}, {"max_tokens"}),
        ({"max_completion_tokens": 3}, {"max_completion_tokens"}),
        ({}, {"max_completion_tokens"}),
    ],
    ids=["older", "newer", "default"],
)
def test_a_declared_cap_stays_as_it_is(given: dict[str, int], names: set[str]) -> None:
    """What is reserved is what is asked for: neither more nor twice."""
    payload = {"model": "m", "messages": HELLO, **given}
    request = OPENAI.request(
        payload, Endpoint("https://x", None), job_id="J", call=1, max_output_tokens=7
    )
    body = json.loads(request.body)
    assert {name for name in body if "max" in name} == names
    charge = OPENAI.prepare(payload, models=(), default_max_output_tokens=7).charge
    assert [body[name] for name in names] == [charge.output_tokens]


def test_compatible_request_uses_the_older_name() -> None:
    request = COMPATIBLE.request(
        {"model": "m", "messages": HELLO},
        Endpoint("http://x", None),
        job_id="J",
        call=1,
        max_output_tokens=7,
    )
    assert json.loads(request.body)["max_tokens"] == 7
    assert "authorization" not in request.headers


def test_anthropic_request() -> None:
    request = ANTHROPIC.request(
        {"model": "m", "messages": HELLO},
        Endpoint("https://x", "k"),
        job_id="J",
        call=2,
        max_output_tokens=9,
    )
    assert request.url == "https://x/v1/messages"
    assert request.headers["x-api-key"] == "k"
    assert request.headers["anthropic-version"]
    assert json.loads(request.body)["max_tokens"] == 9


INVALID = {
    "no-model": ({"messages": HELLO}, "payload.model"),
    "other-model": ({"model": "z", "messages": HELLO}, "allowed: m"),
    "no-messages": ({"model": "m"}, "payload.messages"),
    "empty-messages": ({"model": "m", "messages": []}, "at least one"),
    "no-role": ({"model": "m", "messages": [{}]}, r"messages\[0\]"),
    "bad-count": ({"model": "m", "messages": HELLO, "max_tokens": 0}, "max_tokens"),
    "bool-count": ({"model": "m", "messages": HELLO, "max_tokens": True}, "max_tokens"),
    "bad-stream": ({"model": "m", "messages": HELLO, "stream": "yes"}, "stream"),
}


@pytest.mark.parametrize(("payload", "words"), INVALID.values(), ids=INVALID.keys())
def test_wrong_payloads_are_refused(payload: dict[str, Any], words: str) -> None:
    for provider in (OPENAI, ANTHROPIC):
        with pytest.raises(InvalidJob, match=words):
            provider.prepare(payload, models=("m",), default_max_output_tokens=5)


def test_anthropic_refuses_a_system_message() -> None:
    with pytest.raises(InvalidJob, match=r"payload\.system"):
        ANTHROPIC.prepare(
            {"model": "m", "messages": [{"role": "system", "content": "x"}]},
            models=(),
            default_max_output_tokens=5,
        )


ESTIMATES = {
    "text": ([{"role": "user", "content": "x" * 400}], 104),
    "parts": ([{"role": "user", "content": [{"type": "text", "text": "x" * 400}]}], 105),
    "image": (
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "d" * 90_000}}]}],
        1109,
    ),
    "low-image": (
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"detail": "low"}}]}],
        89,
    ),
    "audio": (
        [
            {
                "role": "user",
                "content": [{"type": "input_audio", "input_audio": {"data": "d" * 128_000}}],
            }
        ],
        34,
    ),
}


@pytest.mark.parametrize(("messages", "tokens"), ESTIMATES.values(), ids=ESTIMATES.keys())
def test_estimates(messages: list[Any], tokens: int) -> None:
    """Texts by length, media by the provider's rule, never by base64 length."""
    prepared = OPENAI.prepare(
        {"model": "m", "messages": messages, "n": 2}, models=(), default_max_output_tokens=5
    )
    assert prepared.charge.input_tokens == tokens
    assert prepared.charge.output_tokens == 10
    assert prepared.charge.worst_nano_usd is None


# ---------------------------------------------------------------- streams


def feed(provider: Any, *events: tuple[str, Any]) -> Any:
    assembler = provider.assembler()
    for name, data in events:
        assembler.feed(SseEvent(name, data if isinstance(data, str) else json.dumps(data)))
    return assembler


def delta(**fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, **fields}], "model": "m", "id": "x"}


def test_openai_stream() -> None:
    """P20: the last chunk has no choices but the usage."""
    call = {"index": 0, "id": "c", "function": {"name": "f", "arguments": '{"a"'}}
    stream = feed(
        OPENAI,
        ("", delta(delta={"role": "assistant", "content": "he"})),
        ("", delta(delta={"content": "llo"})),
        ("", delta(delta={"tool_calls": [call]})),
        ("", delta(delta={"tool_calls": [{"index": 0, "function": {"arguments": ":1}"}}]})),
        ("", delta(delta={}, finish_reason="stop")),
        ("", {"choices": [], "usage": {"prompt_tokens": 4, "completion_tokens": 2}}),
        ("", "[DONE]"),
    )
    assert stream.finished
    outcome = OPENAI.parse(200, {}, stream.document(), elapsed_seconds=0, now=NOW)
    assert outcome.usage == Usage(4, 2)
    message = json.loads(outcome.result)["choices"][0]["message"]
    assert message["content"] == "hello"
    assert message["tool_calls"][0]["function"]["arguments"] == '{"a":1}'


def test_cut_openai_stream_is_not_finished() -> None:
    stream = feed(OPENAI, ("", delta(delta={"content": "x" * 40})))
    assert not stream.finished
    assert stream.usage() == Usage(0, 10, estimated=True)


def anthropic_events() -> list[tuple[str, Any]]:
    start = {"usage": {"input_tokens": 7, "output_tokens": 1}, "type": "message", "model": "m"}
    return [
        ("message_start", {"type": "message_start", "message": start}),
        ("content_block_start", {"type": "content_block_start", "index": 0,
                                 "content_block": {"type": "text", "text": ""}}),
        ("content_block_delta", {"type": "content_block_delta", "index": 0,
                                 "delta": {"type": "text_delta", "text": "hel"}}),
        ("content_block_delta", {"type": "content_block_delta", "index": 0,
                                 "delta": {"type": "text_delta", "text": "lo" * 20}}),
    ]  # fmt: skip


def test_anthropic_stream() -> None:
    tool = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
    stream = feed(
        ANTHROPIC,
        *anthropic_events(),
        ("", {"type": "content_block_start", "index": 1, "content_block": tool}),
        ("", {"type": "content_block_delta", "index": 1,
              "delta": {"type": "input_json_delta", "partial_json": '{"a":1}'}}),
        ("", {"type": "ping"}),
        ("", {"type": "message_delta", "delta": {"stop_reason": "end_turn"},
              "usage": {"output_tokens": 12}}),
        ("", {"type": "message_stop"}),
    )  # fmt: skip
    assert stream.finished
    outcome = ANTHROPIC.parse(200, {}, stream.document(), elapsed_seconds=0, now=NOW)
    assert outcome.usage == Usage(7, 12)
    document = json.loads(outcome.result)
    assert document["content"][0]["text"].startswith("hello")
    assert document["content"][1]["input"] == {"a": 1}


def test_anthropic_error_event_keeps_what_was_used() -> None:
    """P17: start, two deltas, an error event: the partial usage is charged."""
    stream = feed(
        ANTHROPIC,
        *anthropic_events(),
        ("error", {"type": "error", "error": {"type": "overloaded_error", "message": "o"}}),
    )
    assert stream.error.code == "overloaded_error"
    assert stream.usage() == Usage(7, 11, estimated=True)


def test_events_survive_any_cut() -> None:
    text = b'event: a\r\ndata: {"x":1}\r\n\r\n: ping\n\ndata: one\ndata: two\n\ndata: cut'
    whole = [SseEvent("a", '{"x":1}'), SseEvent("", "one\ntwo")]
    for size in (1, 3, 7, len(text)):
        decoder = SseDecoder()
        found = [
            event
            for start in range(0, len(text), size)
            for event in decoder.feed(text[start : start + size])
        ]
        assert found == whole


def test_anthropic_citations_and_a_cut_tool_input() -> None:
    """Nothing that was paid for is dropped, whole or not."""
    tool = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
    stream = feed(
        ANTHROPIC,
        *anthropic_events(),
        ("", {"type": "content_block_delta", "index": 0,
              "delta": {"type": "citations_delta", "citation": {"cited_text": "x"}}}),
        ("", {"type": "content_block_start", "index": 1, "content_block": tool}),
        ("", {"type": "content_block_delta", "index": 1,
              "delta": {"type": "input_json_delta", "partial_json": '{"a": [1,'}}),
        ("", {"type": "message_stop"}),
    )  # fmt: skip
    content = json.loads(stream.document())["content"]
    assert content[0]["citations"] == [{"cited_text": "x"}]
    assert content[1]["input"] == {"partial_json": '{"a": [1,'}


def test_an_anthropic_event_that_is_no_json() -> None:
    stream = feed(ANTHROPIC, *anthropic_events(), ("", "<html>"))
    assert stream.error.codes == ()
    assert "<html>" in stream.error.message
