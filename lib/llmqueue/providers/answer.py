"""Reading a 200: a JSON document or a class that says what it was instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llmqueue.outcome import Outcome
from llmqueue.providers.classify import (
    error_class,
    error_from_bytes,
    error_from_json,
    error_outcome,
    inner_class,
)
from llmqueue.providers.excerpt import excerpt
from llmqueue.providers.fields import loads, mapping
from llmqueue.providers.headers import request_id
from llmqueue.states import OutcomeClass


def malformed(message: str, body: bytes, headers: Mapping[str, str]) -> Outcome:
    """A 200 that is no answer: charged, retried a bounded number of times."""
    return Outcome(
        OutcomeClass.MALFORMED,
        status=200,
        message=f"{message}: {excerpt(body, most=900)}" if body else message,
        request_id=request_id(headers),
    )


def _cut(body: bytes) -> bool:
    """A JSON object that has begun and not ended: the rest was lost on its way."""
    found = body.removeprefix(b"\xef\xbb\xbf").strip()
    return found.startswith(b"{") and not found.endswith(b"}")


def answer_of(
    status: int, headers: Mapping[str, str], body: bytes, *, elapsed_seconds: float, now: float
) -> dict[str, Any] | Outcome:
    """The JSON object of an answer, or the outcome of one that is an error or no answer at all."""
    if not 200 <= status < 300:
        error = error_from_bytes(body)
        kind = error_class(status, error, elapsed_seconds=elapsed_seconds)
        return error_outcome(kind, error, status=status, headers=headers, now=now)
    return document_of(body, headers, now=now)


def document_of(body: bytes, headers: Mapping[str, str], *, now: float) -> dict[str, Any] | Outcome:
    """The JSON object of a 200, or an outcome where there is none or an error inside.

    Blank lines before the JSON (kept connections) and a byte-order mark are passed over.
    """
    if not body.strip():
        return malformed("an empty answer", b"", headers)
    try:
        document = loads(body)
    except ValueError:
        if _cut(body):
            return Outcome(
                OutcomeClass.UNKNOWN,
                status=200,
                message=f"the answer is cut: {excerpt(body, most=900)}",
                code="cut_answer",
                request_id=request_id(headers),
            )
        return malformed("not JSON", body, headers)
    error = error_from_json(document)
    if error is not None:
        return error_outcome(inner_class(error), error, status=200, headers=headers, now=now)
    if not isinstance(document, dict):
        return malformed("not a JSON object", body, headers)
    return mapping(document)
