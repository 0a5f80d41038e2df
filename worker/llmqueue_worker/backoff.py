"""How long to wait after the store failed."""

from __future__ import annotations

import random


class Backoff:
    """Delays in seconds that double from `first` to `most`, each spread over its upper half."""

    def __init__(self, *, first: float = 0.1, most: float = 2.0) -> None:
        self._first, self._most = first, most
        self._failures = 0

    def next(self) -> float:
        delay = min(self._most, self._first * 2.0 ** min(self._failures, 30))
        self._failures += 1
        return delay * random.uniform(0.5, 1.0)

    def reset(self) -> None:
        self._failures = 0
