"""What an error answer says, in any provider's shape."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from llmqueue.providers.excerpt import excerpt
from llmqueue.providers.fields import items, loads, mapping

_MOST_CODES = 16
_MOST_CHARACTERS = 8192


@dataclass(frozen=True, slots=True)
class ErrorBody:
    """Machine-readable words, the most telling first, and a message."""

    codes: tuple[str, ...]
    message: str

    @property
    def code(self) -> str:
        return self.codes[0] if self.codes else ""

    def says(self, pattern: re.Pattern[str], *, words: bool = True) -> bool:
        """Whether a code matches, or with `words` the message."""
        texts = (*self.codes, self.message) if words else self.codes
        return any(pattern.search(text) for text in texts)


def _codes(*values: Any) -> tuple[str, ...]:
    """Strings and numbers among the values, as strings."""
    found = [
        str(value)
        for value in values
        if (isinstance(value, str) and value)
        or (isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**6)
    ]
    return tuple(code[:200] for code in found[:_MOST_CODES])


def _message(*values: Any) -> str:
    return next((v[:_MOST_CHARACTERS] for v in values if isinstance(v, str) and v), "")


def _google_details(details: list[Any]) -> tuple[list[Any], str]:
    """(quota ids, words) of Gemini's details: which quota, and `retryDelay` in words we know."""
    quotas: list[Any] = []
    words = ""
    for detail in map(mapping, details[:_MOST_CODES]):
        quotas += [mapping(v).get("quotaId") for v in items(detail.get("violations"))]
        quotas.append(detail.get("reason"))
        delay = detail.get("retryDelay")
        if isinstance(delay, str):
            words = f" (try again in {delay[:40]})"
    return quotas, words


def error_from_json(document: Any) -> ErrorBody | None:
    """The error inside a JSON document; None if there is none."""
    if isinstance(document, list):  # Gemini's OpenAI-compatible endpoint wraps it
        document = next(iter(items(document)), None)
    outer = mapping(document)
    inner = outer.get("error")
    if isinstance(inner, str) and inner:
        return ErrorBody(_codes(outer.get("code"), outer.get("type")), _message(inner))
    body = mapping(inner)
    if not body:
        # Older vLLM servers answer the error itself.
        if outer.get("object") != "error":
            return None
        body = outer
    details = body.get("details")
    quotas, words = _google_details(items(details))
    codes = _codes(
        body.get("code"),
        mapping(details).get("error_code"),
        body.get("type"),
        body.get("status"),
        *quotas,
    )
    return ErrorBody(codes, _message(body.get("message")) + words)


def error_from_bytes(body: bytes) -> ErrorBody:
    """The error in a body that may be anything."""
    try:
        document = loads(body)
    except ValueError:
        return ErrorBody((), excerpt(body))
    found = error_from_json(document)
    if found is not None:
        return found
    fields = mapping(document)
    words = _message(fields.get("message"), fields.get("detail"))
    return ErrorBody(_codes(fields.get("code"), fields.get("type")), words or excerpt(body))
