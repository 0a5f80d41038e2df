"""Waiting longer after each failure, with jitter."""

from __future__ import annotations

import random

FIRST_SECONDS = 0.1
MOST_SECONDS = 2.0


class Backoff:
    """`next()` gives the seconds to wait; `reset()` after a success."""

    def __init__(self) -> None:
        self._failures = 0

    def next(self) -> float:
        ceiling = min(MOST_SECONDS, FIRST_SECONDS * 2.0**self._failures)
        self._failures = min(self._failures + 1, 10)
        return float(ceiling) * random.uniform(0.5, 1.0)

    def reset(self) -> None:
        self._failures = 0
