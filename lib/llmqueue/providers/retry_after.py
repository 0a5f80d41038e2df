"""When a provider says to come back: every form of Retry-After seen in the field.

Milliseconds headers first, then float seconds, HTTP-date (rounded up, clamped at 0), Go duration.
Not a number, infinite or negative: ignored.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

_MILLISECOND_HEADERS = ("retry-after-ms", "x-ms-retry-after-ms")
_LONGEST_SECONDS = 10 * 366 * 86_400.0
"""A wait of more than ten years is no answer to "when": ignored."""
_UNIT_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_GO_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|us|µs|ns|h|m|s)")
_IN_WORDS = re.compile(r"try again in (?P<wait>[0-9][0-9.hmsuµn]*[a-zµ])\b", re.I)
_REGAIN = re.compile(
    r"regain access on (?P<date>\d{4}-\d{2}-\d{2})(?:[T ](?:at )?(?P<time>\d{2}:\d{2}))?", re.I
)
_REGAIN_WORDS = re.compile(r"regain access on (?P<date>[A-Z][a-z]+ \d{1,2},? \d{4})")


def _finite(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def parse_duration(text: str) -> float | None:
    """A Go duration (`6m0s`, `12ms`, `2m59.56s`) or plain seconds, in seconds; None if neither."""
    text = text.strip()
    plain = _finite(text)
    if plain is not None:
        return plain
    parts = _GO_PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    seconds = sum(float(number) * _UNIT_SECONDS[unit] for number, unit in parts)
    return seconds if math.isfinite(seconds) else None


def _http_date(text: str, now: float) -> float | None:
    try:
        at = parsedate_to_datetime(text)
        if at.tzinfo is None:
            at = at.replace(tzinfo=UTC)
        return float(max(0, math.ceil(at.timestamp() - now)))
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


def _sensible(seconds: float | None) -> float | None:
    return seconds if seconds is not None and seconds <= _LONGEST_SECONDS else None


def retry_after(headers: Mapping[str, str], *, now: float) -> float | None:
    """Seconds to wait as the provider asked, or None. Header names are lower-case."""
    for name in _MILLISECOND_HEADERS:
        milliseconds = _finite(headers.get(name, "").strip())
        if milliseconds is not None:
            return _sensible(milliseconds / 1000)
    text = headers.get("retry-after", "").strip()
    if not text:
        return None
    seconds = parse_duration(text)
    if seconds is None and not _is_number(text):
        seconds = _http_date(text, now)
    return _sensible(seconds)


def asked_in_words(message: str) -> float | None:
    """The wait in "Please try again in 1m30s", or None: gateways drop headers, not bodies."""
    found = _IN_WORDS.search(message)
    return _sensible(parse_duration(found["wait"].lower())) if found else None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def regain_access(message: str) -> float | None:
    """The Unix time that "regain access on <date>" names (UTC), or None."""
    found = _REGAIN.search(message)
    if found:
        try:
            day = datetime.fromisoformat(f"{found['date']}T{found['time'] or '00:00'}:00+00:00")
        except ValueError:
            return None
        return day.timestamp()
    words = _REGAIN_WORDS.search(message)
    if words:
        try:
            at = datetime.strptime(words["date"].replace(",", ""), "%B %d %Y")
        except ValueError:
            return None
        return at.replace(tzinfo=UTC).timestamp()
    return None
