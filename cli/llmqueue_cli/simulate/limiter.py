"""The simulated provider's own limiter. It shares no code with the limiter it is used to test."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from llmqueue_cli.simulate.limits import Demand, Dimension, Level, Limits, TokenCounting
from llmqueue_cli.simulate.window import Entry, PerSecondBucket, SlidingWindow


@dataclass(frozen=True, slots=True)
class Admission:
    """A call that was let in, and what was counted for it."""

    entries: dict[Dimension, Entry]


@dataclass(frozen=True, slots=True)
class Refusal:
    """A call over a limit: which, and how long until it fits (inf: never)."""

    dimension: Dimension
    limit: int
    used: int
    requested: int
    wait_seconds: float


class Limiter:
    """Counts every call exactly, in all dimensions, and refuses those over a limit.

    Failed calls stay counted. Windows are kept for unlimited dimensions too, so that a limit set
    later applies to what was already used.

    Args:
        per_second: enforce a bucket a second besides the window.
        count_refused: refused calls use up requests as well.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        limits: Limits,
        *,
        clock: Callable[[], float],
        window_seconds: float = 60.0,
        per_second: bool = False,
        counting: TokenCounting = "keep",
        count_refused: bool = False,
    ) -> None:
        self.limits = limits
        self.counting: TokenCounting = counting
        self._clock = clock
        self._window_seconds = window_seconds
        self._per_second = per_second
        self._count_refused = count_refused
        self._windows = {each: SlidingWindow(window_seconds) for each in Dimension}
        self._buckets = {each: PerSecondBucket(window_seconds) for each in Dimension}

    def admit(self, demand: Demand) -> Admission | Refusal:
        """Let a call in and count it, or change nothing (but for `count_refused`)."""
        now = self._clock()
        amounts = demand.amounts(self.counting)
        refusal = self._refusal(now, amounts)
        if refusal:
            if self._count_refused:
                self._windows[Dimension.REQUESTS].add(now, 1)
            return refusal
        return Admission({each: self._count(each, now, amount) for each, amount in amounts.items()})

    def _refusal(self, now: float, amounts: dict[Dimension, int]) -> Refusal | None:
        """The limit that would be waited for longest, if any is in the way."""
        worst: Refusal | None = None
        for dimension, amount in amounts.items():
            limit = self.limits.of(dimension)
            if limit is None:
                continue
            # Output that is counted as produced needs room for one token at least.
            asked = max(1, amount) if dimension is Dimension.OUTPUT_TOKENS else amount
            wait = self._windows[dimension].wait(now, asked, limit)
            if self._per_second and amount:
                wait = max(wait, self._buckets[dimension].wait(now, amount, limit))
            if wait > (worst.wait_seconds if worst else 0.0):
                used = self._windows[dimension].used(now)
                worst = Refusal(dimension, limit, used, asked, wait)
        return worst

    def _count(self, dimension: Dimension, now: float, amount: int) -> Entry:
        limit = self.limits.of(dimension)
        if limit is not None and self._per_second:
            self._buckets[dimension].take(now, amount, limit)
        return self._windows[dimension].add(now, amount)

    def settle(self, admission: Admission, *, input_tokens: int, output_tokens: int) -> None:
        """Say what a call really used (0 for a failed one); with `keep` nothing changes."""
        if self.counting == "keep":
            return
        now = self._clock()
        actual = {
            Dimension.TOKENS: input_tokens + output_tokens,
            Dimension.INPUT_TOKENS: input_tokens,
        }
        for dimension, amount in actual.items():
            entry = admission.entries[dimension]
            limit = self.limits.of(dimension)
            if limit is not None and self._per_second:
                self._buckets[dimension].take(now, amount - entry.amount, limit)
            self._windows[dimension].correct(entry, amount, now=now)
        self._windows[Dimension.OUTPUT_TOKENS].add(now, output_tokens)

    def levels(self) -> dict[Dimension, Level]:
        """How full each limited dimension is now; what is used comes back at an even pace there,
        as in the providers' own headers."""
        now = self._clock()
        found: dict[Dimension, Level] = {}
        for dimension, window in self._windows.items():
            limit = self.limits.of(dimension)
            if limit is not None:
                used = min(limit, window.used(now))
                reset = self._window_seconds * used / limit if limit else 0.0
                found[dimension] = Level(limit, limit - used, reset)
        return found


def whole_seconds(wait: float) -> int | None:
    """A wait as an honest Retry-After: never earlier than true; None if waiting is no use."""
    return None if math.isinf(wait) else max(1, math.ceil(wait))
