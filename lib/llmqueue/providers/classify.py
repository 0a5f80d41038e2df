"""Which class an error answer has: by its inner code first, then by its status."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from llmqueue.outcome import Outcome, Usage
from llmqueue.providers.excerpt import excerpt
from llmqueue.providers.retry_after import regain_access, retry_after
from llmqueue.states import OutcomeClass, Severity

_QUOTA_CODE = re.compile(
    r"insufficient_quota|credit_balance|billing_hard_limit|billing_not_active"
    r"|spend_limit|usage_limit|quota_exceeded"
)
_QUOTA_TEXT = re.compile(
    r"reached your specified .*usage limits|credit balance is too low"
    r"|exceeded your current quota",
    re.I | re.S,
)
_QUOTA_STATUSES = frozenset({400, 402, 403, 429})
_RAMP_CODES = frozenset({"slow_down", "ramp_limit_exceeded"})
_OVERLOADED = re.compile(
    r"overloaded|resource_unavailable|resource unavailable|engine_overloaded", re.I
)
_CONTEXT = re.compile(
    r"context_length|maximum context|prompt is too long|too many tokens|string_above_max", re.I
)
_UNKNOWN_STATUSES = frozenset({408, 504, 520, 524})
_LATE_BAD_GATEWAY_SECONDS = 30.0
_CRITICAL = frozenset({OutcomeClass.AUTH, OutcomeClass.FORBIDDEN, OutcomeClass.QUOTA})


@dataclass(frozen=True, slots=True)
class ErrorBody:
    """What an error answer says: machine-readable words and a message."""

    codes: tuple[str, ...]
    message: str

    @property
    def code(self) -> str:
        return self.codes[0] if self.codes else ""


def _strings(*values: Any) -> tuple[str, ...]:
    return tuple(value for value in values if isinstance(value, str) and value)


def _mapping(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def error_from_json(document: Any) -> ErrorBody | None:
    """The error inside a JSON document, in any provider's shape; None if there is none."""
    outer = _mapping(document)
    inner = outer.get("error")
    if inner is None:
        return None
    if isinstance(inner, str):
        return ErrorBody(_strings(outer.get("code"), outer.get("type")), inner)
    body = _mapping(inner)
    details = _mapping(body.get("details"))
    codes = _strings(body.get("code"), details.get("error_code"), body.get("type"))
    return ErrorBody(codes, str(body.get("message") or ""))


def error_from_bytes(body: bytes) -> ErrorBody:
    """The error in a body that may be anything."""
    try:
        found = error_from_json(json.loads(body.decode("utf-8-sig")))
    except (ValueError, RecursionError):
        found = None
    return found or ErrorBody((), excerpt(body))


def _is_quota(status: int, error: ErrorBody) -> bool:
    if status == 402:
        return True
    if status not in _QUOTA_STATUSES:
        return False
    return any(_QUOTA_CODE.search(code) for code in error.codes) or bool(
        _QUOTA_TEXT.search(error.message)
    )


def _is_overloaded(error: ErrorBody) -> bool:
    return any(_OVERLOADED.search(text) for text in (*error.codes, error.message))


def error_class(status: int, error: ErrorBody, *, elapsed_seconds: float = 0.0) -> OutcomeClass:
    """The class of an error answer."""
    if _is_quota(status, error):
        return OutcomeClass.QUOTA
    if any(code in _RAMP_CODES for code in error.codes):
        return OutcomeClass.RAMP
    if status in (401, 407):
        return OutcomeClass.AUTH
    if status == 403:
        return OutcomeClass.FORBIDDEN
    if status == 529 or (status in (429, 503) and _is_overloaded(error)):
        return OutcomeClass.OVERLOAD
    if status == 429:
        return OutcomeClass.RATE
    if status in _UNKNOWN_STATUSES:
        return OutcomeClass.UNKNOWN
    if status == 502 and elapsed_seconds > _LATE_BAD_GATEWAY_SECONDS:
        return OutcomeClass.UNKNOWN
    return OutcomeClass.TRANSIENT if status >= 500 else OutcomeClass.PERMANENT


_INNER_STATUS = (
    (re.compile(r"overloaded"), 529),
    (re.compile(r"rate_limit"), 429),
    (re.compile(r"insufficient_quota|billing|credit"), 402),
    (re.compile(r"authentication|invalid_api_key"), 401),
    (re.compile(r"permission"), 403),
    (re.compile(r"api_error|server_error|internal"), 500),
    (re.compile(r"timeout"), 504),
    (re.compile(r"invalid_request|not_found|request_too_large"), 400),
)


def inner_class(error: ErrorBody) -> OutcomeClass:
    """The class of an error that came inside a 200 or as a stream event."""
    for code in error.codes:
        if code.isdigit():
            return error_class(int(code), error)
        for pattern, status in _INNER_STATUS:
            if pattern.search(code):
                return error_class(status, error)
    return OutcomeClass.MALFORMED


def severity(kind: OutcomeClass, error: ErrorBody) -> Severity:
    if kind in _CRITICAL:
        return Severity.CRITICAL
    if kind is OutcomeClass.PERMANENT and any(
        _CONTEXT.search(text) for text in (*error.codes, error.message)
    ):
        return Severity.WARNING
    return Severity.ERROR


def error_outcome(
    kind: OutcomeClass,
    error: ErrorBody,
    *,
    status: int | None,
    headers: Mapping[str, str],
    now: float,
    usage: Usage | None = None,
) -> Outcome:
    """An Outcome for an error answer: what a person reads, and when to come back."""
    message = excerpt(error.message or f"HTTP {status} without a message")
    return Outcome(
        kind,
        status=status,
        message=message,
        code=error.code[:64],
        retry_after_seconds=retry_after(headers, now=now),
        pause_until=regain_access(error.message) if kind is OutcomeClass.QUOTA else None,
        usage=usage,
        request_id=headers.get("x-request-id") or headers.get("request-id") or "",
        severity=severity(kind, error),
    )
