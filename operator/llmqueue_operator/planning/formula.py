"""The arithmetic of scaling: how many workers a rate budget sustains, and how many a backlog needs.

rate (grants/s) × W (slot seconds per grant) = L, the calls in flight that the budget sustains.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from llmqueue.config import Limit

LOWER_MARGIN = 1.5
"""The cap must fall this far below the target before the target follows."""


def usable_per_second(limit: Limit) -> float:
    """Units a second that exact windows let through: a window of `seconds` is enforced with a
    second of jitter, so seconds/(seconds + 1) of the limit can be used."""
    return limit.limit / (limit.seconds + 1)


def sustained_calls(rate: float, slot_seconds: float) -> float:
    """L, by Little's law."""
    return rate * slot_seconds


def unrounded_cap(in_flight: float, max_in_flight: float, slots: int) -> float:
    """Workers that the budget can occupy, before rounding.

    √L covers the variation of call times: at L = 8, 8 workers use 0.86 of the budget, 9 use 0.92,
    11 use 0.97. `max_in_flight` (the queue's share of it) has no variation to cover.
    """
    return min(in_flight + math.sqrt(in_flight), max_in_flight) / slots


def room(
    raw: float, slots: int, *, stayers: int, marked_in_flight: Sequence[int], leaving_in_flight: int
) -> float:
    """The part of an unrounded cap that is left beside calls on draining workers.

    A marked worker that is wanted again is taken back, the busiest first: its calls then run on a
    worker that stays and take no room any more. Workers that already end can't be taken back.
    """
    draining = leaving_in_flight + sum(marked_in_flight)
    left = raw - draining / slots
    for taken_back, calls in enumerate(sorted(marked_in_flight, reverse=True), start=1):
        draining -= calls
        beside = raw - draining / slots
        if beside < stayers + taken_back:
            break
        left = beside
    return left


def rounded_cap(raw: float, rate: float) -> float:
    """Whole workers of an unrounded cap: at least 1 while anything may be granted."""
    if math.isinf(raw):
        return raw
    return max(math.ceil(raw), 1 if rate > 0 else 0)


def steady_cap(raw: float, rate: float, target: int) -> float:
    """`rounded_cap` with hysteresis: a cap that is barely below the target leaves it alone."""
    if target - LOWER_MARGIN <= raw <= target:
        return float(target)
    return rounded_cap(raw, rate)


def demand(backlog: float, slots: int) -> int:
    """Workers that keep every job of the backlog running."""
    return math.ceil(backlog / slots)


def backlog_for_wait(
    backlog: float,
    *,
    in_flight: int,
    ready: int,
    arrivals_per_second: float,
    target_queue_wait_seconds: float,
    slot_seconds: float,
) -> float:
    """The part of a backlog that must run at once for no job to wait longer than the target."""
    needed = (arrivals_per_second + ready / target_queue_wait_seconds) * slot_seconds
    return min(backlog, max(in_flight, needed))


def clamp(workers: float, low: int, high: int) -> int:
    """`workers` within [low, high]; `high` wins where they conflict."""
    return int(min(max(workers, low), high))
