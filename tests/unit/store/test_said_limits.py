"""What limits in response headers come to for the store."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from llmqueue.outcome import Outcome
from llmqueue.providers.headers import anthropic_hints, openai_hints
from llmqueue.states import OutcomeClass
from llmqueue.store.codec import settlement_json
from llmqueue.store.port import Settlement

NOW = 1_796_000_000.0
MINUTE_MS, DAY_MS = 60_000, 86_400_000


def limit_headers(unit: str, limit: object, remaining: object, reset: str) -> dict[str, str]:
    values = {"limit": limit, "remaining": remaining, "reset": reset}
    return {f"x-ratelimit-{field}-{unit}": str(value) for field, value in values.items()}


OPENAI = {
    "openai": (
        limit_headers("requests", 60, 59, "1s") | limit_headers("tokens", 150_000, 149_984, "6ms"),
        [["requests", MINUTE_MS, 60], ["tokens", 56_250, 150_000]],
    ),
    "openai, a limit of a day": (
        limit_headers("requests", 200, 199, "7m12s"),
        [["requests", DAY_MS, 200]],
    ),
    "groq: requests of a day, tokens of a minute": (
        limit_headers("requests", 14_400, 14_370, "2m59.56s")
        | limit_headers("tokens", 18_000, 17_997, "10ms"),
        [["requests", 86_188_800, 14_400], ["tokens", MINUTE_MS, 18_000]],
    ),
    "azure: whole seconds": (
        limit_headers("requests", 100, 50, "30"),
        [["requests", MINUTE_MS, 100]],
    ),
    "azure: not known": (limit_headers("requests", -1, -1, "0"), None),
    "nothing used": (limit_headers("requests", 60, 60, "0s"), [["requests", 0, 60]]),
    "all used": (limit_headers("requests", 60, 0, "1m0s"), [["requests", MINUTE_MS, 60]]),
    "only the limit": ({"x-ratelimit-limit-requests": "60"}, [["requests", 0, 60]]),
    "more remaining than the limit": (
        limit_headers("requests", 60, 90, "1s"),
        [["requests", 0, 60]],
    ),
    "a limit of zero": (limit_headers("requests", 0, 0, "1s"), None),
    "no number": (limit_headers("requests", "many", 5, "1s"), None),
    "none": ({}, None),
}


def said(headers_hints: object) -> object:
    outcome = Outcome(OutcomeClass.SUCCESS, limits=tuple(headers_hints))  # type: ignore[arg-type]
    return json.loads(settlement_json(Settlement("j", "f", outcome), now=NOW)).get("h")


@pytest.mark.parametrize(("headers", "expected"), OPENAI.values(), ids=OPENAI.keys())
def test_openai_s_headers(headers: Mapping[str, str], expected: object) -> None:
    """P10: the reset tells the window that a limit is for."""
    assert said(openai_hints(headers, now=NOW)) == expected


def test_anthropic_s_headers() -> None:
    """Each unit by its own name; the reset is an instant."""
    headers = {
        "anthropic-ratelimit-requests-limit": "50",
        "anthropic-ratelimit-requests-remaining": "45",
        "anthropic-ratelimit-requests-reset": "2026-11-30T00:53:26Z",
        "anthropic-ratelimit-input-tokens-limit": "50000",
        "anthropic-ratelimit-input-tokens-remaining": "25000",
        "anthropic-ratelimit-input-tokens-reset": "2026-11-30T00:53:50Z",
        "anthropic-ratelimit-output-tokens-limit": "10000",
    }
    assert said(anthropic_hints(headers, now=NOW)) == [
        ["requests", MINUTE_MS, 50],
        ["input_tokens", MINUTE_MS, 50_000],
        ["output_tokens", 0, 10_000],
    ]
