"""The two ways of counting: an exact log of a sliding window, and a bucket that refills."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

BURST_SECONDS = 3
BURST_CALLS = 5


@dataclass(slots=True)
class Entry:
    """One amount counted at one time; `amount` may be corrected later."""

    at: float
    amount: int


class SlidingWindow:
    """Every amount of the last `seconds`, each with its time.

    The window is half open: what was counted at `t` is gone at `t + seconds`.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._entries: deque[Entry] = deque()
        self._used = 0

    def used(self, now: float) -> int:
        """The sum over the window that ends now."""
        while self._entries and self._entries[0].at + self._seconds <= now:
            self._used -= self._entries.popleft().amount
        return self._used

    def add(self, now: float, amount: int) -> Entry:
        """Count an amount; `now` never goes back."""
        entry = Entry(now, amount)
        self._entries.append(entry)
        self._used += amount
        return entry

    def correct(self, entry: Entry, amount: int, *, now: float) -> None:
        """Count another amount in an entry's place; one that has left the window stays gone."""
        self.used(now)
        if entry.at + self._seconds > now:
            self._used += amount - entry.amount
        entry.amount = amount

    def wait(self, now: float, amount: int, limit: int) -> float:
        """Seconds until `amount` more would fit under `limit`; inf if it never will."""
        if amount > limit:
            return math.inf
        excess = self.used(now) + amount - limit
        for entry in self._entries:
            if excess <= 0:
                break
            excess -= entry.amount
            if excess <= 0:
                return entry.at + self._seconds - now
        return 0.0


class PerSecondBucket:
    """A bucket refilled at `limit / seconds` a second.

    It holds max(3 seconds' worth, 5 calls), a call being as large as the one that asks. Kept as
    what is missing from a full bucket, so that a changed limit needs no conversion.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._missing = 0.0
        self._at = 0.0

    def _refill(self, now: float, limit: int) -> float:
        """Refill up to now; returns the rate a second."""
        rate = limit / self._seconds
        if now > self._at:
            self._missing = max(0.0, self._missing - rate * (now - self._at))
            self._at = now
        return rate

    def wait(self, now: float, amount: int, limit: int) -> float:
        """Seconds until `amount` is there; inf if the bucket never refills."""
        rate = self._refill(now, limit)
        lacking = self._missing + amount - max(BURST_SECONDS * rate, BURST_CALLS * amount)
        # A part of a unit below what floats can tell apart is not a reason to refuse.
        if lacking <= 1e-9:
            return 0.0
        return lacking / rate if rate else math.inf

    def take(self, now: float, amount: int, limit: int) -> None:
        """Take an amount out; a negative one puts it back."""
        self._refill(now, limit)
        self._missing = max(0.0, self._missing + amount)
