"""When a process has done enough: it drains and starts itself anew in place, with the same pid.

The container never ends, so the kubelet has nothing to back off from.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_STATM = Path("/proc/self/statm")
_MIB = 1024 * 1024


def resident_mib() -> float:
    """Resident memory of this process; 0 where the system does not tell."""
    try:
        pages = int(_STATM.read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / _MIB


@dataclass(frozen=True, slots=True)
class RecycleRule:
    """0 = no bound."""

    max_jobs: int
    max_seconds: float
    max_memory_mib: int
    memory: Callable[[], float] = resident_mib

    def due(self, *, jobs: int, seconds: float) -> str | None:
        """Why the process should start anew now, or None."""
        if self.max_jobs and jobs >= self.max_jobs:
            return f"{jobs} jobs done"
        if self.max_seconds and seconds >= self.max_seconds:
            return f"{seconds:.0f} s old"
        if self.max_memory_mib and (used := self.memory()) >= self.max_memory_mib:
            return f"{used:.0f} MiB used"
        return None


def start_anew() -> None:
    """Replace this process by a fresh one: same pid, same environment."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, "-m", "llmqueue_worker"])  # noqa: S606
