"""When days begin, as scripts are told."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo, available_timezones

import pytest

from llmqueue.config import Limit
from llmqueue.days import day_starts, known_zone, listed_month
from llmqueue.states import LimitUnit

HOUR = 3600


def hours(zone: str, *, at: datetime) -> dict[str, float]:
    """Local date → how long that day is."""
    starts = day_starts(zone, at=at.timestamp())
    names = [datetime.fromtimestamp(start, ZoneInfo(zone)).date().isoformat() for start in starts]
    lengths = [(after - before) / HOUR for before, after in pairwise(starts)]
    return dict(zip(names, lengths, strict=False))


ODD = {
    "spring": ("America/Los_Angeles", "2027-03-14", 23),
    "autumn": ("America/Los_Angeles", "2026-11-01", 25),
    "the leap is at midnight": ("Africa/Cairo", "2026-04-24", 23),
    "half an hour": ("Australia/Lord_Howe", "2026-10-04", 23.5),
    "none": ("Asia/Kolkata", "2026-10-04", 24),
}


@pytest.mark.parametrize(("zone", "date", "length"), ODD.values(), ids=ODD.keys())
def test_days_have_the_hours_that_they_have(zone: str, date: str, length: float) -> None:
    at = datetime.fromisoformat(date).replace(tzinfo=UTC)
    assert hours(zone, at=at)[date] == length


@pytest.mark.parametrize("zone", ["America/Los_Angeles", "Pacific/Kiritimati", "Etc/GMT+12"])
def test_the_list_reaches_from_before_the_month_to_after_the_next(zone: str) -> None:
    """It is the same all month long, so that the configuration is not written each tick."""
    first, last = datetime(2026, 12, 1, tzinfo=UTC), datetime(2026, 12, 31, 23, 59, tzinfo=UTC)
    listed = day_starts(zone, at=first.timestamp())
    assert listed == day_starts(zone, at=last.timestamp())
    assert listed[0] < first.timestamp()
    assert listed[-1] > (last + timedelta(days=40)).timestamp()


def test_days_of_every_zone_are_in_order() -> None:
    for zone in sorted(available_timezones()):
        starts = day_starts(zone, at=datetime(2026, 3, 15, tzinfo=UTC).timestamp())
        assert all(22 * HOUR <= after - before <= 26 * HOUR for before, after in pairwise(starts))


def test_the_month_counts_where_there_are_calendar_days() -> None:
    rolling = Limit(LimitUnit.REQUESTS, 1, 86_400)
    calendar = Limit(LimitUnit.REQUESTS, 1, 86_400, "UTC")
    at = datetime(2026, 11, 30, 23, 59, tzinfo=UTC).timestamp()
    assert listed_month([rolling], at=at) == ""
    assert listed_month([rolling, calendar], at=at) == "2026-11"
    assert listed_month([calendar], at=at + 60) == "2026-12"


def test_zones_that_are_known() -> None:
    assert [known_zone(name) for name in ("UTC", "Mars/Base", "../etc/passwd")] == [
        True,
        False,
        False,
    ]


def test_names_tell_windows_apart() -> None:
    names = [
        Limit(LimitUnit.REQUESTS, 1, seconds, zone).name
        for seconds, zone in ((60, None), (86_400, None), (86_400, "UTC"), (86_400, "Asia/Tokyo"))
    ]
    assert len(set(names)) == 4
    assert names[2] == "requests/day@UTC"
