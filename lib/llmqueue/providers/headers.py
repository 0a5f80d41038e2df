"""Rate-limit headers as limit hints; anything negative or unreadable is ignored."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime

from llmqueue.outcome import LimitHint
from llmqueue.providers.retry_after import parse_duration

_OPENAI = "x-ratelimit-{field}-{unit}"
_ANTHROPIC = "anthropic-ratelimit-{unit}-{field}"
_UNITS = {
    "requests": "requests",
    "tokens": "tokens",
    "input-tokens": "input_tokens",
    "output-tokens": "output_tokens",
}
_MOST_COUNT = 10**12
_EPOCH_SECONDS, _EPOCH_MILLISECONDS = 1e9, 1e11
"""Numbers above these can only be instants (OpenRouter: milliseconds)."""


def request_id(headers: Mapping[str, str]) -> str:
    """The provider's name of a call, at most 128 characters."""
    return (headers.get("x-request-id") or headers.get("request-id") or "")[:128]


def _count(text: str | None) -> int | None:
    try:
        value = float(text) if text is not None else math.nan
    except ValueError:
        return None
    return int(value) if abs(value) <= _MOST_COUNT else None


def _reset(text: str | None, now: float) -> float | None:
    """Seconds until full again: a Go duration, seconds, an epoch or RFC 3339."""
    if text is None:
        return None
    seconds = parse_duration(text)
    if seconds is not None:
        if seconds > _EPOCH_MILLISECONDS:
            return max(0.0, seconds / 1000 - now)
        return max(0.0, seconds - now) if seconds > _EPOCH_SECONDS else seconds
    try:
        at = datetime.fromisoformat(text.strip())
        return max(0.0, at.timestamp() - now) if at.tzinfo else None
    except (ValueError, OverflowError):
        return None


def _hint(headers: Mapping[str, str], pattern: str, unit: str, now: float) -> LimitHint | None:
    raw = {
        field: headers.get(pattern.format(field=field, unit=unit))
        for field in ("limit", "remaining", "reset")
    }
    if not any(raw.values()):
        return None
    limit, remaining = _count(raw["limit"]), _count(raw["remaining"])
    if (limit is not None and limit < 0) or (remaining is not None and remaining < 0):
        return None
    return LimitHint(_UNITS[unit], limit, remaining, _reset(raw["reset"], now))


def openai_hints(headers: Mapping[str, str], *, now: float) -> tuple[LimitHint, ...]:
    """`x-ratelimit-{limit,remaining,reset}-{requests,tokens}`: OpenAI, Groq, Azure."""
    hints = (_hint(headers, _OPENAI, unit, now) for unit in ("requests", "tokens"))
    return tuple(hint for hint in hints if hint)


def anthropic_hints(headers: Mapping[str, str], *, now: float) -> tuple[LimitHint, ...]:
    """`anthropic-ratelimit-{requests,tokens,input-tokens,output-tokens}-{limit,…}`."""
    hints = (_hint(headers, _ANTHROPIC, unit, now) for unit in _UNITS)
    return tuple(hint for hint in hints if hint)
