"""Errors as servers really write them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from llmqueue.providers.excerpt import MAX_EXCERPT_BYTES, excerpt, without
from llmqueue.providers.registry import get_provider
from llmqueue.states import OutcomeClass as K
from llmqueue.states import ProviderType

NOW = 1_796_000_000.0
COMPATIBLE = get_provider(ProviderType.OPENAI_COMPATIBLE)


def gemini(message: str, *details: dict[str, Any]) -> list[dict[str, Any]]:
    error = {"code": 429, "message": message, "status": "RESOURCE_EXHAUSTED"}
    return [{"error": {**error, "details": list(details)}}]


QUOTA_WORDS = "You exceeded your current quota, please check your plan"
MINUTE = {"violations": [{"quotaId": "GenerateRequestsPerMinutePerProjectPerModel"}]}
DAY = {"violations": [{"quotaId": "GenerateRequestsPerDayPerProjectPerModel"}]}

SHAPES: dict[str, tuple[int, Any, K, str]] = {
    "string": (429, {"error": "slow", "code": "rate_limit"}, K.RATE, "slow"),
    "number-code": (429, {"error": {"code": 429, "message": "m"}}, K.RATE, "m"),
    "vllm": (400, {"object": "error", "message": "too long", "code": 400}, K.PERMANENT, "too long"),
    "fastapi": (422, {"detail": "field required"}, K.PERMANENT, "field required"),
    "message-only": (503, {"message": "no healthy upstream"}, K.TRANSIENT, "no healthy upstream"),
    "error-null": (500, {"error": None, "message": "m"}, K.TRANSIENT, "m"),
    "error-number": (500, {"error": 7}, K.TRANSIENT, '{"error": 7}'),
    "details-list": (400, {"error": {"message": "m", "details": [1, None]}}, K.PERMANENT, "m"),
    "list": (500, [1, 2], K.TRANSIENT, "[1, 2]"),
    "gemini-minute": (429, gemini(QUOTA_WORDS, MINUTE), K.RATE, QUOTA_WORDS),
    "gemini-day": (429, gemini(QUOTA_WORDS, DAY), K.QUOTA, QUOTA_WORDS),
    "gemini-none": (429, gemini("Quota exceeded, limit: 0", MINUTE), K.QUOTA, "limit: 0"),
    "gemini-key": (
        400,
        [{"error": {"code": 400, "message": "API key not valid",
                    "details": [{"reason": "API_KEY_INVALID"}]}}],
        K.AUTH,
        "API key not valid",
    ),
    "xai-key": (400, {"code": "x", "error": "Incorrect API key provided"}, K.AUTH, "Incorrect"),
    "limit-zero-elsewhere": (429, {"error": {"message": "limit: 0"}}, K.RATE, "limit: 0"),
    "overload-words": (503, {"error": {"message": "Engine is overloaded"}}, K.OVERLOAD, "Engine"),
    "bare-redirect": (304, {}, K.MALFORMED, "{}"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("status", "document", "kind", "words"), SHAPES.values(), ids=SHAPES.keys()
)
def test_shapes(status: int, document: Any, kind: K, words: str) -> None:
    body = json.dumps(document).encode()
    outcome = COMPATIBLE.parse(status, {}, body, elapsed_seconds=1, now=NOW)
    assert outcome.kind is kind
    assert words in outcome.message


INNER: dict[str, tuple[Any, K]] = {
    "openrouter": ({"error": {"code": 429, "message": "m"}}, K.RATE),
    "slow-down": ({"error": {"code": "slow_down"}}, K.RAMP),
    "vllm": ({"object": "error", "code": 500, "message": "m"}, K.TRANSIENT),
    "quota-words": (
        {"error": {"type": "invalid_request_error", "message": "credit balance is too low"}},
        K.QUOTA,
    ),
    "other-number": ({"error": {"code": 1113, "message": "m"}}, K.MALFORMED),
    "overload-words": ({"error": {"message": "model overloaded"}}, K.OVERLOAD),
    "string": ({"error": "went wrong"}, K.MALFORMED),
}


@pytest.mark.parametrize(("document", "kind"), INNER.values(), ids=INNER.keys())
def test_errors_inside_a_200(document: Any, kind: K) -> None:
    """MALFORMED, an error inside: classified by its inner code."""
    body = json.dumps(document).encode()
    assert COMPATIBLE.parse(200, {}, body, elapsed_seconds=1, now=NOW).kind is kind


@pytest.mark.parametrize("nothing", [None, "", {}, [], False])
def test_an_empty_error_beside_an_answer_is_none(nothing: Any) -> None:
    document = {"error": nothing, "choices": [{"message": {"content": "x"}}]}
    body = json.dumps(document).encode()
    assert COMPATIBLE.parse(200, {}, body, elapsed_seconds=1, now=NOW).kind is K.SUCCESS


CUT = {
    "object": b'{"choices": [{"message": {"cont',
    "with-bom": b'\xef\xbb\xbf{"choices": [',
    "inside-a-letter": b'{"choices": [{"message": {"content": "\xc3',
}


@pytest.mark.parametrize("body", CUT.values(), ids=CUT.keys())
def test_a_cut_answer_is_unknown(body: bytes) -> None:
    """P18: a JSON object that began and did not end may have been billed; never half parsed."""
    for kind in ProviderType:
        outcome = get_provider(kind).parse(200, {}, body, elapsed_seconds=1, now=NOW)
        assert (outcome.kind, outcome.result) == (K.UNKNOWN, None)


ODD_CHOICES = [
    {"choices": []},
    {"choices": {}},
    {"choices": [None]},
    {"choices": [{"message": None}]},
    {"choices": [{"message": {"content": "x"}}, {"message": None}]},
]


@pytest.mark.parametrize("document", ODD_CHOICES, ids=repr)
def test_choices_without_messages(document: Any) -> None:
    """P20."""
    body = json.dumps(document).encode()
    outcome = COMPATIBLE.parse(200, {}, body, elapsed_seconds=1, now=NOW)
    assert outcome.kind is K.MALFORMED


@pytest.mark.parametrize(
    ("message", "headers", "seconds"),
    [
        ("Please try again in 20s.", {}, 20.0),
        ("Please try again in 6m0s. Visit", {}, 360.0),
        ("try again in 1.242s", {}, 1.242),
        ("try again in 86ms.", {}, 0.086),
        ("try again in 20s", {"retry-after": "3"}, 3.0),
        ("try again in a while", {}, None),
    ],
)
def test_waits_in_words(message: str, headers: dict[str, str], seconds: float | None) -> None:
    """P12: gateways drop headers, not bodies; a header comes first."""
    body = json.dumps({"error": {"message": message}}).encode()
    outcome = COMPATIBLE.parse(429, headers, body, elapsed_seconds=1, now=NOW)
    expected = None if seconds is None else pytest.approx(seconds)
    assert outcome.retry_after_seconds == expected


def test_geminis_delay_is_kept() -> None:
    body = json.dumps(gemini(QUOTA_WORDS, MINUTE, {"retryDelay": "46s"})).encode()
    outcome = COMPATIBLE.parse(429, {}, body, elapsed_seconds=1, now=NOW)
    assert (outcome.kind, outcome.retry_after_seconds) == (K.RATE, 46.0)


def test_words_of_a_permanent_error_are_no_wait() -> None:
    body = json.dumps({"error": {"message": "try again in 20s"}}).encode()
    assert COMPATIBLE.parse(400, {}, body, elapsed_seconds=1, now=NOW).retry_after_seconds is None


def test_whatever_names_something_is_bounded() -> None:
    body = json.dumps(
        {
            "model": "m" * 10_000,
            "service_tier": {"not": "text"},
            "choices": [{"message": {"content": "x"}}],
        }
    ).encode()
    headers = {"x-request-id": "r" * 10_000}
    outcome = COMPATIBLE.parse(200, headers, body, elapsed_seconds=1, now=NOW)
    assert (len(outcome.model), outcome.service_tier, len(outcome.request_id)) == (200, "", 128)
    error = COMPATIBLE.parse(500, headers, b'{"error": {"code": "%s"}}' % (b"c" * 9000),
                             elapsed_seconds=1, now=NOW)  # fmt: skip
    assert len(error.code.encode()) <= 64


# ---------------------------------------------------------------- excerpts


@pytest.mark.parametrize(
    "text",
    [
        "sk-proj-abcdefgh12345",
        "Authorization: Bearer abc.def-ghi",
        "x-api-key: short",
        "https://user:hidden@host/",
        "https://host/?api_key=abcdefghij",
        "?key=AbCdEf123456&x",
        "gsk_abcdefgh1234",
        "AIzaSyA1234567890abcdefghij",
    ],
)
def test_anything_like_a_key_is_removed(text: str) -> None:
    found = excerpt(f"see {text} here")
    assert "[secret]" in found
    for part in ("abcdefgh", "abc.def", "short", "hidden", "AbCdEf", "SyA123"):
        assert part not in found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("a 0123456789 b", "a [secret] b", id="inside"),
        pytest.param("0123456789", "[secret]", id="alone"),
        pytest.param("cut 01234567…", "cut [secret]", id="cut-at-the-end"),
        pytest.param("cut 01234", "cut 01234", id="too-short-to-be-one"),
        pytest.param("nothing", "nothing", id="none"),
        pytest.param("", "", id="empty"),
    ],
)
def test_the_key_itself_is_removed(text: str, expected: str) -> None:
    assert without(text, ("0123456789", "x", "")) == expected


@pytest.mark.parametrize(
    "text",
    ["é" * 3000, "\ud800" * 3000, "x" * 100_000, b"\xff" * 100_000],
    ids=["2", "s", "x", "b"],
)
def test_excerpts_are_bounded(text: str | bytes) -> None:
    for most in (64, MAX_EXCERPT_BYTES):
        assert 0 < len(excerpt(text, most=most).encode()) <= most
