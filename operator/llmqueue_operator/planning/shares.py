"""Weighted water-filling: what each queue of a budget may use of one limit.

It follows what each queue can use, so it has no busy/idle switch: what one leaves is lent to the
others within the same tick.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

HORIZON_SECONDS = 10.0
"""A backlog counts as if it wanted to be granted within this time."""


@dataclass(frozen=True, slots=True)
class Claimant:
    """One queue's claim on a capacity: `wants` in the capacity's unit, `weight` ≥ 1."""

    wants: float
    weight: int


def water_fill(capacity: float, claimants: Sequence[Claimant]) -> list[float]:
    """Give each claimant min(wants, weight × level), with the level that uses up the capacity.

    Returns amounts in the order of `claimants`; their sum is ≤ `capacity`.
    """
    given = [0.0] * len(claimants)
    open_: list[int] = [i for i, claimant in enumerate(claimants) if claimant.wants > 0]
    left = capacity
    while open_:
        weights = sum(claimants[i].weight for i in open_)
        level = left / weights
        sated = [i for i in open_ if claimants[i].wants <= level * claimants[i].weight]
        if not sated:
            for i in open_:
                given[i] = level * claimants[i].weight
            break
        for i in sated:
            given[i] = claimants[i].wants
            left -= claimants[i].wants
        open_ = [i for i in open_ if i not in sated]
    return given


def shares(capacity: float, claimants: Sequence[Claimant]) -> list[float]:
    """What each claimant may use: all that the others do not take.

    A queue alone has the whole capacity, however little it wants now.
    """
    given = water_fill(capacity, claimants)
    total = sum(given)
    return [capacity - (total - own) for own in given]
