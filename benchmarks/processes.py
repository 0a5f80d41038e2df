"""CPU, memory and ends of processes, read from /proc (Linux)."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


def require_linux() -> None:
    """Raises SystemExit where there is no /proc."""
    if sys.platform != "linux":
        raise SystemExit("the benchmarks read /proc and run on Linux only")


def end_tidily() -> None:
    """Let SIGTERM unwind like an exception, so that servers and workers end with this process."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def _fields(pid: int) -> list[str] | None:
    """Fields of /proc/<pid>/stat from the third (state) on; None where it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text.rpartition(")")[2].split()


def session(leader: int) -> Iterator[int]:
    """Living processes of the session that `leader` started: a worker and all below it."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            fields = _fields(int(name))
            if fields and int(fields[3]) == leader and fields[0] != "Z":
                yield int(name)


def cpu_seconds(pid: int) -> float:
    """User + system time of a process and of its children that ended; 0 where it is gone."""
    fields = _fields(pid)
    return sum(map(int, fields[11:15])) / _TICKS if fields else 0.0


def session_cpu_seconds(leader: int) -> float:
    """User + system time of a session, ended children included once they were waited for."""
    return sum(cpu_seconds(pid) for pid in session(leader))


def rss_bytes(pid: int) -> int:
    """Resident memory of one process."""
    fields = _fields(pid)
    return int(fields[21]) * _PAGE_BYTES if fields else 0


def end_session(leader: int, *, how: signal.Signals = signal.SIGKILL) -> None:
    """Signal every process of a session."""
    for pid in list(session(leader)):
        try:
            os.kill(pid, how)
        except ProcessLookupError:
            continue


def wait_until(
    condition: Callable[[], bool], *, seconds: float, look_seconds: float = 0.01
) -> bool:
    """Look until `condition()` holds; False when the time is over."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(look_seconds)
    return True
