"""P21: whatever a server says is an outcome, never an exception, never nonsense."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmqueue.outcome import Outcome, Usage
from llmqueue.providers.classify import inner_class
from llmqueue.providers.headers import anthropic_hints, openai_hints
from llmqueue.providers.image_size import image_size
from llmqueue.providers.port import Provider
from llmqueue.providers.registry import get_provider
from llmqueue.providers.retry_after import asked_in_words, regain_access, retry_after
from llmqueue.providers.sse import SseDecoder, SseEvent
from llmqueue.states import OutcomeClass, ProviderType

NOW = 1_796_000_000.0
PROVIDERS = [get_provider(kind) for kind in ProviderType]
NAMES = st.sampled_from(
    ["error", "code", "type", "message", "details", "choices", "delta", "index", "usage", "content",
     "finish_reason", "tool_calls", "object", "status", "error_code", "violations", "retryDelay",
     "prompt_tokens", "completion_tokens", "input_tokens", "output_tokens", "model", "text",
     "content_block", "partial_json", "input_json_delta", "cache_creation", "service_tier",
     "citation", "function", "arguments", "stop_reason"]
)  # fmt: skip
WORDS = st.sampled_from(
    ["error", "message", "message_start", "content_block_start", "content_block_delta",
     "message_delta", "message_stop", "text_delta", "input_json_delta", "stop", "{", "\ud800"]
) | st.text(max_size=5)  # fmt: skip
ATOMS = st.none() | st.booleans() | st.integers() | st.floats() | WORDS
DOCUMENTS = st.recursive(
    ATOMS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES | WORDS, inner, max_size=6),
    max_leaves=20,
)
STATUSES = st.sampled_from([200, 201, 204, 304, 400, 401, 402, 403, 429, 500, 502, 503, 529, 999])
NUMBERS = st.sampled_from(
    ["-1", "0", "1e999", "nan", "inf", "-inf", "1_0", "9" * 400, "9" * 400 + "s", "1m30s", "6m0s",
     "Mon, 99 Foo 2026 99:99:99 GMT", "Fri, 31 Dec 9999 23:59:59 GMT", "9999-12-31T23:59:59Z",
     "0001-01-01T00:00:00+23:59", "2026-11-30T00:00:00"]
) | st.text(max_size=20)  # fmt: skip
HEADERS = st.dictionaries(
    st.sampled_from(
        ["retry-after", "retry-after-ms", "x-ms-retry-after-ms", "x-request-id"]
        + [f"x-ratelimit-{f}-{u}" for f in ("limit", "remaining", "reset")
           for u in ("requests", "tokens")]
        + [f"anthropic-ratelimit-input-tokens-{f}" for f in ("limit", "remaining", "reset")]
    ),
    NUMBERS,
    max_size=6,
)  # fmt: skip


def check(outcome: Outcome) -> None:
    assert isinstance(outcome.kind, OutcomeClass)
    assert (outcome.result is not None) == (outcome.kind is OutcomeClass.SUCCESS)
    assert outcome.sent
    assert len(outcome.message.encode()) <= 1024
    if outcome.usage:
        sane(outcome.usage)


def sane(usage: Usage) -> None:
    assert usage.input_tokens >= 0
    assert usage.output_tokens >= 0
    assert usage.cached_tokens + usage.cache_write_tokens <= usage.input_tokens
    assert usage.cache_write_1h_tokens <= usage.cache_write_tokens


@pytest.mark.parametrize("provider", PROVIDERS, ids=list(ProviderType))
@settings(max_examples=300, deadline=None)
@given(status=STATUSES, headers=HEADERS, document=DOCUMENTS)
def test_any_document(
    provider: Provider, status: int, headers: dict[str, str], document: Any
) -> None:
    body = json.dumps(document).encode()
    check(provider.parse(status, headers, body, elapsed_seconds=1, now=NOW))


@pytest.mark.parametrize("provider", PROVIDERS, ids=list(ProviderType))
@settings(max_examples=100, deadline=None)
@given(status=STATUSES, body=st.binary(max_size=200))
def test_any_bytes(provider: Provider, status: int, body: bytes) -> None:
    check(provider.parse(status, {}, body, elapsed_seconds=1, now=NOW))


@pytest.mark.parametrize("provider", PROVIDERS, ids=list(ProviderType))
@settings(max_examples=300, deadline=None)
@given(events=st.lists(st.tuples(WORDS, DOCUMENTS), max_size=6))
def test_any_stream(provider: Provider, events: list[tuple[str, Any]]) -> None:
    assembler = provider.assembler()
    for name, data in events:
        assembler.feed(SseEvent(name, json.dumps(data)))
        if assembler.error:
            assert isinstance(inner_class(assembler.error), OutcomeClass)
    assembler.end()
    sane(assembler.usage())
    check(provider.parse(200, {}, assembler.document(), elapsed_seconds=0, now=NOW))


@settings(max_examples=300)
@given(headers=HEADERS)
def test_any_header(headers: dict[str, str]) -> None:
    """P9, P10: nothing negative, nothing endless, nothing that is no number."""
    asked = retry_after(headers, now=NOW)
    assert asked is None or 0 <= asked <= 10 * 366 * 86_400
    for hint in (*openai_hints(headers, now=NOW), *anthropic_hints(headers, now=NOW)):
        assert hint.limit is None or 0 <= hint.limit <= 10**12
        assert hint.remaining is None or 0 <= hint.remaining <= 10**12
        assert hint.reset_seconds is None or 0 <= hint.reset_seconds < math.inf


@settings(max_examples=200)
@given(text=st.text(max_size=30))
def test_any_words(text: str) -> None:
    asked = asked_in_words("try again in " + text)
    assert asked is None or asked >= 0
    until = regain_access("regain access on " + text)
    assert until is None or math.isfinite(until)


@settings(max_examples=200)
@given(data=st.binary(max_size=200), cuts=st.lists(st.integers(0, 200), max_size=5))
def test_any_cut_of_an_event_stream(data: bytes, cuts: list[int]) -> None:
    whole = list(SseDecoder().feed(data + b"\n\n"))
    edges = [0, *sorted(cuts), len(data) + 2]
    decoder = SseDecoder()
    pieces = [(data + b"\n\n")[a:b] for a, b in pairwise(edges)]
    assert [event for piece in pieces for event in decoder.feed(piece)] == whole


@settings(max_examples=200)
@given(
    start=st.sampled_from([b"\x89PNG\r\n\x1a\n", b"GIF89a", b"\xff\xd8\xff", b"RIFF0000WEBPVP8 "]),
    rest=st.binary(max_size=80),
)
def test_any_image(start: bytes, rest: bytes) -> None:
    size = image_size(start + rest)
    assert size is None or min(size) >= 1
