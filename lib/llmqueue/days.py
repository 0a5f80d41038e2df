"""When calendar days begin, for scripts that know no time zones."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from llmqueue.config import Limit

_DAYS_BEFORE = 2
_DAYS_LISTED = 75
"""At the end of a month more than 40 of them are still to come."""


def known_zone(name: str) -> bool:
    """Whether this is the name of an IANA time zone."""
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


def day_starts(time_zone: str, *, at: float) -> tuple[int, ...]:
    """Unix seconds at which days begin in a zone, from before the UTC month of `at` (Unix seconds)
    to after the next one: the same all month long."""
    zone, first = ZoneInfo(time_zone), _month(at)
    days = (first + timedelta(days=n - _DAYS_BEFORE) for n in range(_DAYS_LISTED))
    # Where the clock leaps over midnight, this is the moment of the leap.
    starts = {int(datetime(d.year, d.month, d.day, tzinfo=zone).timestamp()) for d in days}
    return tuple(sorted(starts))


def listed_month(limits: Iterable[Limit], *, at: float) -> str:
    """For which month the days of these limits are to be listed: "2026-11"; empty where none of
    them is a calendar limit. Another value means that the configuration is to be written anew."""
    if all(limit.time_zone is None for limit in limits):
        return ""
    return f"{_month(at):%Y-%m}"


def _month(at: float) -> date:
    return datetime.fromtimestamp(at, UTC).date().replace(day=1)
