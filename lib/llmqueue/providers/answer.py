"""Reading a 200: a JSON document or a class that says what it was instead."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from llmqueue.outcome import Outcome
from llmqueue.providers.classify import error_from_json, error_outcome, inner_class
from llmqueue.providers.excerpt import excerpt
from llmqueue.states import OutcomeClass


def malformed(message: str, body: bytes, headers: Mapping[str, str]) -> Outcome:
    """A 200 that is no answer: charged, retried a bounded number of times."""
    return Outcome(
        OutcomeClass.MALFORMED,
        status=200,
        message=f"{message}: {excerpt(body)}" if body else message,
        request_id=headers.get("x-request-id") or headers.get("request-id") or "",
    )


def document_of(body: bytes, headers: Mapping[str, str], *, now: float) -> dict[str, Any] | Outcome:
    """The JSON object of a 200, or an outcome where there is none or an error inside.

    Blank lines before the JSON (kept connections) and a byte-order mark are passed over.
    """
    if not body.strip():
        return malformed("an empty answer", b"", headers)
    try:
        document = json.loads(body.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return malformed("not JSON", body, headers)
    if not isinstance(document, dict):
        return malformed("not a JSON object", body, headers)
    fields = cast("dict[str, Any]", document)
    error = error_from_json(fields)
    if error is not None:
        return error_outcome(inner_class(error), error, status=200, headers=headers, now=now)
    return fields


def count(fields: Mapping[str, Any], *path: str) -> int | None:
    """A non-negative whole number at a path, None where it is missing or something else."""
    value: Any = fields
    for name in path:
        if not isinstance(value, Mapping):
            return None
        value = cast("Mapping[str, Any]", value).get(name)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        return None
    return value
