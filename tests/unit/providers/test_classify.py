"""Every row of the classes of outcome."""

from __future__ import annotations

import json
from typing import Any

import pytest

from llmqueue.outcome import Outcome
from llmqueue.providers.classify import ErrorBody, inner_class
from llmqueue.providers.excerpt import excerpt
from llmqueue.providers.registry import get_provider
from llmqueue.states import OutcomeClass as K
from llmqueue.states import ProviderType, Severity

NOW = 1_796_000_000.0


def openai_error(code: str | None, kind: str = "x", message: str = "m") -> bytes:
    return json.dumps({"error": {"message": message, "type": kind, "code": code}}).encode()


def anthropic_error(kind: str, message: str = "m", code: str | None = None) -> bytes:
    error: dict[str, Any] = {"type": kind, "message": message}
    if code:
        error["details"] = {"error_code": code}
    return json.dumps({"type": "error", "error": error}).encode()


def parse(
    provider: ProviderType, status: int, body: bytes, *, elapsed: float = 1.0, **headers: str
) -> Outcome:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return get_provider(provider).parse(status, names, body, elapsed_seconds=elapsed, now=NOW)


OPENAI = [
    ("rate", 429, openai_error("rate_limit_exceeded"), K.RATE),
    ("rate-no-body", 429, b"", K.RATE),
    ("slow-down-429", 429, openai_error("slow_down"), K.RAMP),
    ("slow-down-503", 503, openai_error("slow_down"), K.RAMP),
    ("ramp", 429, openai_error("ramp_limit_exceeded"), K.RAMP),
    ("quota", 429, openai_error("insufficient_quota"), K.QUOTA),
    ("quota-type", 429, openai_error(None, "insufficient_quota"), K.QUOTA),
    ("credit", 429, openai_error("credit_balance_exhausted"), K.QUOTA),
    ("spend", 429, openai_error("project_spend_limit_reached"), K.QUOTA),
    ("usage", 403, openai_error("org_usage_limit_reached"), K.QUOTA),
    ("payment", 402, b"pay", K.QUOTA),
    ("auth", 401, openai_error("invalid_api_key"), K.AUTH),
    ("proxy-auth", 407, b"", K.AUTH),
    ("forbidden", 403, openai_error("unsupported_country"), K.FORBIDDEN),
    ("flex", 429, openai_error("resource_unavailable"), K.OVERLOAD),
    (
        "overloaded-503",
        503,
        openai_error(None, "server_error", "The engine is overloaded"),
        K.OVERLOAD,
    ),
    ("unavailable", 503, b"<html>", K.TRANSIENT),
    ("server", 500, openai_error(None, "server_error"), K.TRANSIENT),
    ("bad-gateway-at-once", 502, b"<html>bad gateway</html>", K.TRANSIENT),
    ("521", 521, b"", K.TRANSIENT),
    ("522", 522, b"", K.TRANSIENT),
    ("523", 523, b"", K.TRANSIENT),
    ("408", 408, b"", K.UNKNOWN),
    ("504", 504, b"", K.UNKNOWN),
    ("520", 520, b"", K.UNKNOWN),
    ("524", 524, b"", K.UNKNOWN),
    ("400", 400, openai_error("invalid_value"), K.PERMANENT),
    ("404", 404, openai_error("model_not_found"), K.PERMANENT),
    ("413", 413, b"", K.PERMANENT),
    ("422", 422, b"", K.PERMANENT),
]


@pytest.mark.parametrize(
    ("status", "body", "kind"), [row[1:] for row in OPENAI], ids=[row[0] for row in OPENAI]
)
@pytest.mark.parametrize("provider", [ProviderType.OPENAI, ProviderType.OPENAI_COMPATIBLE])
def test_openai_errors(provider: ProviderType, status: int, body: bytes, kind: K) -> None:
    """P12, P14, P16, P19 and the table of classes."""
    outcome = parse(provider, status, body)
    assert (outcome.kind, outcome.sent, outcome.status) == (kind, True, status)
    assert outcome.message


ANTHROPIC = [
    ("rate", 429, anthropic_error("rate_limit_error"), K.RATE),
    (
        "spend",
        429,
        anthropic_error("rate_limit_error", code="enforced_spend_limit_reached"),
        K.QUOTA,
    ),
    ("overloaded", 529, anthropic_error("overloaded_error"), K.OVERLOAD),
    ("api", 500, anthropic_error("api_error"), K.TRANSIENT),
    ("auth", 401, anthropic_error("authentication_error"), K.AUTH),
    ("permission", 403, anthropic_error("permission_error"), K.FORBIDDEN),
    ("timeout", 504, anthropic_error("timeout_error"), K.UNKNOWN),
    ("invalid", 400, anthropic_error("invalid_request_error"), K.PERMANENT),
    (
        "usage-400",
        400,
        anthropic_error(
            "invalid_request_error", "You have reached your specified API usage limits."
        ),
        K.QUOTA,
    ),
    (
        "credit-400",
        400,
        anthropic_error("invalid_request_error", "Your credit balance is too low to access"),
        K.QUOTA,
    ),
]


@pytest.mark.parametrize(
    ("status", "body", "kind"), [row[1:] for row in ANTHROPIC], ids=[row[0] for row in ANTHROPIC]
)
def test_anthropic_errors(status: int, body: bytes, kind: K) -> None:
    assert parse(ProviderType.ANTHROPIC, status, body).kind is kind


def test_late_bad_gateway_may_be_billed() -> None:
    assert parse(ProviderType.OPENAI, 502, b"", elapsed=31).kind is K.UNKNOWN


def test_spend_limit_names_its_end() -> None:
    """P15."""
    body = anthropic_error(
        "rate_limit_error",
        "You will regain access on 2026-12-01 at 00:00 UTC",
        "enforced_spend_limit_reached",
    )
    outcome = parse(ProviderType.ANTHROPIC, 429, body)
    assert outcome.pause_until == 1_796_083_200.0
    assert outcome.severity is Severity.CRITICAL


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (401, openai_error("invalid_api_key"), Severity.CRITICAL),
        (403, b"", Severity.CRITICAL),
        (400, openai_error("context_length_exceeded"), Severity.WARNING),
        (400, openai_error("invalid_value"), Severity.ERROR),
    ],
)
def test_severity(status: int, body: bytes, expected: Severity) -> None:
    assert parse(ProviderType.OPENAI, status, body).severity is expected


@pytest.mark.parametrize(
    ("codes", "kind"),
    [
        (("overloaded_error",), K.OVERLOAD),
        (("rate_limit_error",), K.RATE),
        (("insufficient_quota",), K.QUOTA),
        (("authentication_error",), K.AUTH),
        (("permission_error",), K.FORBIDDEN),
        (("server_error",), K.TRANSIENT),
        (("invalid_request_error",), K.PERMANENT),
        (("429",), K.RATE),
        (("what",), K.MALFORMED),
        ((), K.MALFORMED),
    ],
)
def test_error_inside_a_200(codes: tuple[str, ...], kind: K) -> None:
    """An error inside a 200 or a stream is classified by its inner code."""
    assert inner_class(ErrorBody(codes, "")) is kind


MALFORMED = {
    "empty": b"",
    "html": b"<html><body>Login with Bearer abcdefghijkl</body></html>",
    "list": b"[]",
    "choices-null": b'{"choices": null}',
    "no-choices": b"{}",
    "non-utf8": b'{"choices": "\xff\xfe"}',
    "deep": b"[" * 100_000,
}


@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_200_that_is_no_answer(body: bytes) -> None:
    """P19, P20, P21: charged, never half parsed, the excerpt scrubbed."""
    for provider in (ProviderType.OPENAI, ProviderType.ANTHROPIC):
        outcome = parse(provider, 200, body)
        assert outcome.kind is K.MALFORMED
        assert "abcdefghijkl" not in outcome.message


@pytest.mark.parametrize(
    "secret", ["sk-abcdefgh12345", "Bearer eyJhbGciOi.x-y", "AIzaSyA1234567890abcdefghij"]
)
def test_excerpt_is_short_and_without_keys(secret: str) -> None:
    text = f"wrong key {secret} here\n\x00" + "é" * 3000
    found = excerpt(text)
    assert secret.rsplit(maxsplit=1)[-1] not in found
    assert len(found.encode()) <= 1024
    assert "\n" not in found
