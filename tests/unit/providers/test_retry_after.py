"""When to come back, in every form seen in the field."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import format_datetime

import pytest

from llmqueue.providers.retry_after import parse_duration, regain_access, retry_after

NOW = 1_796_000_000.25


def _date(seconds: float) -> str:
    return format_datetime(datetime.fromtimestamp(NOW + seconds, UTC), usegmt=True)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        pytest.param({"retry-after": "20"}, 20.0, id="seconds"),
        pytest.param({"retry-after": "1.5"}, 1.5, id="float"),
        pytest.param({"retry-after": "-5"}, None, id="negative"),
        pytest.param({"retry-after": "nan"}, None, id="nan"),
        pytest.param({"retry-after": "inf"}, None, id="inf"),
        pytest.param({"retry-after": ""}, None, id="empty"),
        pytest.param({}, None, id="missing"),
        pytest.param({"retry-after": "soon"}, None, id="words"),
        pytest.param({"retry-after": "1m30s"}, 90.0, id="go-duration"),
        pytest.param({"retry-after-ms": "1500", "retry-after": "9"}, 1.5, id="ms-first"),
        pytest.param({"x-ms-retry-after-ms": "250"}, 0.25, id="azure-ms"),
        pytest.param({"retry-after-ms": "-1", "retry-after": "9"}, 9.0, id="bad-ms-then-seconds"),
        pytest.param({"retry-after": "86400"}, 86_400.0, id="a-day"),
        pytest.param({"retry-after": "9" * 400}, None, id="overflow"),
        pytest.param({"retry-after": "9" * 400 + "s"}, None, id="overflow-go"),
        pytest.param({"retry-after": "1e12"}, None, id="in-ten-thousand-years"),
        pytest.param({"retry-after": "Fri, 31 Dec 9999 23:59:59 GMT"}, None, id="year-9999"),
        pytest.param({"retry-after-ms": "nan", "retry-after": "9"}, 9.0, id="nan-ms"),
        pytest.param({"retry-after": _date(-60)}, 0.0, id="date-in-the-past"),
    ],
)
def test_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    """P9, P11."""
    assert retry_after(headers, now=NOW) == seconds


def test_http_date_is_rounded_up() -> None:
    """P9: an HTTP-date names whole seconds: never earlier than asked."""
    # A date has no fractions: 19.75 s from NOW by now, and rounded up.
    assert retry_after({"retry-after": _date(19.9)}, now=NOW) == 20.0
    assert retry_after({"retry-after": _date(20)}, now=NOW - 0.5) == 21.0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("6m0s", 360.0),
        ("12ms", 0.012),
        ("2m59.56s", 179.56),
        ("1h", 3600.0),
        ("7", 7.0),
        ("5 minutes", None),
        ("", None),
        ("-3s", None),
    ],
)
def test_durations(text: str, seconds: float | None) -> None:
    found = parse_duration(text)
    assert found == (None if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize(
    ("message", "iso"),
    [
        ("You will regain access on 2026-12-01 at 00:00 UTC.", "2026-12-01T00:00:00+00:00"),
        ("regain access on 2026-12-24", "2026-12-24T00:00:00+00:00"),
        ("You will regain access on December 1, 2026.", "2026-12-01T00:00:00+00:00"),
        ("regain access on 2026-13-45", None),
        ("regain access on Smarch 1, 2026", None),
        ("later", None),
    ],
)
def test_regain_access(message: str, iso: str | None) -> None:
    """P15."""
    expected = None if iso is None else datetime.fromisoformat(iso).timestamp()
    assert regain_access(message) == expected
