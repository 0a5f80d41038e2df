"""Which class an error answer has: by its inner code first, then by its status."""

from __future__ import annotations

import re
from collections.abc import Mapping

from llmqueue.outcome import Outcome, Usage
from llmqueue.providers.error_body import ErrorBody, error_from_bytes, error_from_json
from llmqueue.providers.excerpt import excerpt
from llmqueue.providers.headers import request_id
from llmqueue.providers.retry_after import asked_in_words, regain_access, retry_after
from llmqueue.states import OutcomeClass, Severity

__all__ = [
    "ErrorBody",
    "error_class",
    "error_from_bytes",
    "error_from_json",
    "error_outcome",
    "inner_class",
]

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
_PER_MINUTE = re.compile(r"PerMinute")
_NO_QUOTA = re.compile(r"\blimit: 0\b")
_RAMP_CODES = frozenset({"slow_down", "ramp_limit_exceeded"})
_OVERLOADED = re.compile(r"overloaded|resource[_ ]unavailable", re.I)
_KEY_REFUSED = re.compile(r"invalid_api_key|API_KEY_INVALID|(?:incorrect|invalid) api key", re.I)
_CONTEXT = re.compile(
    r"context_length|maximum context|prompt is too long|too many tokens|string_above_max", re.I
)
_UNKNOWN_STATUSES = frozenset({408, 504, 520, 524})
_LATE_BAD_GATEWAY_SECONDS = 30.0
_CRITICAL = frozenset({OutcomeClass.AUTH, OutcomeClass.FORBIDDEN, OutcomeClass.QUOTA})
_RATES = frozenset({OutcomeClass.RATE, OutcomeClass.RAMP})


def _is_quota(status: int, error: ErrorBody) -> bool:
    if status == 402:
        return True
    if status not in _QUOTA_STATUSES:
        return False
    if error.says(_QUOTA_CODE, words=False):
        return True
    # Gemini says the same words of a minute's limit, except where there is no quota at all.
    if error.says(_PER_MINUTE, words=False):
        return _NO_QUOTA.search(error.message) is not None
    return _QUOTA_TEXT.search(error.message) is not None


def error_class(status: int, error: ErrorBody, *, elapsed_seconds: float = 0.0) -> OutcomeClass:
    """The class of an error answer."""
    if _is_quota(status, error):
        return OutcomeClass.QUOTA
    if any(code in _RAMP_CODES for code in error.codes):
        return OutcomeClass.RAMP
    if status in (401, 407) or (status == 400 and error.says(_KEY_REFUSED)):
        return OutcomeClass.AUTH
    if status == 403:
        return OutcomeClass.FORBIDDEN
    if status == 529 or (status in (429, 503) and error.says(_OVERLOADED)):
        return OutcomeClass.OVERLOAD
    if status == 429:
        return OutcomeClass.RATE
    if status in _UNKNOWN_STATUSES:
        return OutcomeClass.UNKNOWN
    if status == 502 and elapsed_seconds > _LATE_BAD_GATEWAY_SECONDS:
        return OutcomeClass.UNKNOWN
    if status < 400:
        return OutcomeClass.MALFORMED
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
_STATUS = re.compile(r"[45][0-9][0-9]")


def inner_class(error: ErrorBody) -> OutcomeClass:
    """The class of an error that came inside a 200 or as a stream event."""
    for code in error.codes:
        if code in _RAMP_CODES:
            return OutcomeClass.RAMP
        if _STATUS.fullmatch(code):
            return error_class(int(code), error)
        for pattern, status in _INNER_STATUS:
            if pattern.search(code):
                return error_class(status, error)
    return OutcomeClass.OVERLOAD if error.says(_OVERLOADED) else OutcomeClass.MALFORMED


def severity(kind: OutcomeClass, error: ErrorBody) -> Severity:
    if kind in _CRITICAL:
        return Severity.CRITICAL
    if kind is OutcomeClass.PERMANENT and error.says(_CONTEXT):
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
    asked = retry_after(headers, now=now)
    if asked is None and kind in _RATES:
        asked = asked_in_words(error.message)
    return Outcome(
        kind,
        status=status,
        message=excerpt(error.message or f"HTTP {status} without a message"),
        code=excerpt(error.code, most=64),
        retry_after_seconds=asked,
        pause_until=regain_access(error.message) if kind is OutcomeClass.QUOTA else None,
        usage=usage,
        request_id=request_id(headers),
        severity=severity(kind, error),
    )
