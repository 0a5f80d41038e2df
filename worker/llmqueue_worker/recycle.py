"""When this process has done enough: after so many jobs, so long, or too much memory.

It then drains and executes itself anew in place, with the same pid. It never ends its container:
the kubelet backs off from restarting even one that ended with exit code 0.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import structlog

from llmqueue.settings import WorkerSettings
from llmqueue_worker.signals import StopSignals, hold_back

_UNLIMITED = 1_000_000_000
_MEMORY_CHECK_SECONDS = 1.0
_STATM = Path("/proc/self/statm")

_log = structlog.get_logger()


def resident_mib() -> float:
    """Memory of this process that is resident now; 0 where the system does not say."""
    try:
        pages = int(_STATM.read_text().split()[1])
    except OSError:
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


class Recycling:
    """Counts down to the end of this process image. `clock` is monotonic."""

    def __init__(
        self,
        settings: WorkerSettings,
        *,
        clock: Callable[[], float] = time.monotonic,
        memory: Callable[[], float] = resident_mib,
    ) -> None:
        self._settings, self._clock, self._memory = settings, clock, memory
        self._started_at = self._checked_at = clock()
        self._jobs = 0
        self.reason: str | None = None

    def started(self) -> None:
        """One more job was started."""
        self._jobs += 1

    def quota(self) -> int:
        """How many jobs may still be started; 0 once it is time, with `reason` set."""
        self.reason = self.reason or self._due()
        if self.reason:
            return 0
        most = self._settings.max_jobs
        return most - self._jobs if most else _UNLIMITED

    def _due(self) -> str | None:
        settings, now = self._settings, self._clock()
        if settings.max_jobs and self._jobs >= settings.max_jobs:
            return "max-jobs"
        if settings.max_seconds and now - self._started_at >= settings.max_seconds:
            return "max-seconds"
        # Without a job in between, a new image would be as large as this one.
        if (
            settings.max_memory_mib
            and self._jobs
            and now - self._checked_at >= (_MEMORY_CHECK_SECONDS)
        ):
            self._checked_at = now
            if self._memory() > settings.max_memory_mib:
                return "max-memory"
        return None


def execute_anew(signals: StopSignals) -> None:
    """Replace this process by a new image of itself, unless it was told to end.

    Signals that arrive meanwhile are kept for the new image, or, where another thread catches them,
    seen here.
    """
    hold_back()
    sys.stdout.flush()
    sys.stderr.flush()
    if signals.received:
        return
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - itself
