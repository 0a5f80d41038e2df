"""What one call costs the server: how long its main thread ran, counted by the kernel.

Unlike the wall time of the server's slow log this leaves out what other processes took of the
machine, and it does not log the commands inside scripts, which costs more than they do. It includes
reading the request, writing the answer and the append-only file. One caller at a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redis import Redis

from llmqueue.store.scripts import library


@dataclass(frozen=True, slots=True)
class Times:
    """Microseconds of the server's main thread in one script's calls."""

    calls: int
    p50_us: float
    p99_us: float
    max_us: float


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value that `share` of an ordered sequence is not above (nearest rank)."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def times(durations: Sequence[float]) -> Times:
    ordered = sorted(durations)
    return Times(len(ordered), quantile(ordered, 0.5), quantile(ordered, 0.99), ordered[-1])


class ServerTime:
    """`with clock("claim"): …` around each call; `take()` returns what was measured."""

    def __init__(self, url: str, pid: int) -> None:
        self._redis: Any = Redis.from_url(url)
        self._schedule = Path(f"/proc/{pid}/schedstat")
        self._found: dict[str, list[float]] = {}
        self.recording = True
        # Compiled now: the first call would else be measured with it.
        self._redis.function_load(library().source, replace=True)

    def _ran_us(self) -> float:
        return int(self._schedule.read_text().split()[0]) / 1000

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        before = self._ran_us() if self.recording else 0.0
        yield
        if self.recording:
            self._found.setdefault(name, []).append(self._ran_us() - before)

    def take(self) -> dict[str, list[float]]:
        """Name → microseconds of each call since the last `take()`."""
        found, self._found = self._found, {}
        return found

    def used_memory(self) -> int:
        """Bytes that the server has allocated."""
        return int(self._redis.info("memory")["used_memory"])

    def close(self) -> None:
        self._redis.close()
