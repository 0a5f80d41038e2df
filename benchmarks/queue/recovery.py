"""What becomes of the jobs of a worker that is killed: kill -9, then another worker at once."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.processes import end_session, wait_until
from benchmarks.queue.launch import produce, worker
from benchmarks.queue.marks import Marks
from benchmarks.queue.systems import System
from benchmarks.server import Server

HOLD_SECONDS = 1.0
_ROUNDS_OF_SLOTS = 3
_START_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Recovery:
    """`interrupted` jobs were running at the kill; `back` of them ran to their end afterwards,
    the first `first_seconds` and the last `last_seconds` after the kill (None: not one did within
    `cap_seconds`). `untouched` jobs were waiting at the kill and `untouched_done` of them ran."""

    interrupted: int
    back: int
    first_seconds: float | None
    last_seconds: float | None
    untouched: int
    untouched_done: int
    cap_seconds: float


def measure(system: System, *, cap_seconds: float) -> Recovery:
    """Kill a worker while all its slots run a job of HOLD_SECONDS; start another; watch.

    Raises RuntimeError where the first worker never filled its slots.
    """
    jobs = system.slots * _ROUNDS_OF_SLOTS
    with Server() as server, tempfile.TemporaryDirectory(prefix="llmqueue-bench-") as folder:
        marks = Marks(Path(folder) / "marks")
        produce(system, server.url, jobs)
        with worker(system, server.url, marks.path, hold_seconds=HOLD_SECONDS) as first:
            if not wait_until(
                lambda: len(marks.numbers("s")) >= system.slots, seconds=_START_SECONDS
            ):
                raise RuntimeError(f"{system.name}: {marks.numbers('s')} started, no more")
            end_session(first.pid)
            first.wait()
        killed = time.monotonic()
        ended = set(marks.numbers("e"))
        interrupted = set(marks.numbers("s")) - ended
        untouched = set(range(jobs)) - interrupted - ended
        with worker(system, server.url, marks.path, hold_seconds=HOLD_SECONDS):
            first_seconds, last_seconds = _watch(marks, interrupted, untouched, killed, cap_seconds)
        done = set(marks.numbers("e"))
    return Recovery(
        interrupted=len(interrupted),
        back=len(interrupted & done),
        first_seconds=first_seconds,
        last_seconds=last_seconds,
        untouched=len(untouched),
        untouched_done=len(untouched & done),
        cap_seconds=cap_seconds,
    )


def _watch(
    marks: Marks, interrupted: set[int], untouched: set[int], killed: float, cap_seconds: float
) -> tuple[float | None, float | None]:
    """Seconds from the kill to the ends of the first and last interrupted jobs that came back."""
    first, last, seen = None, None, 0
    while time.monotonic() - killed < cap_seconds:
        done = set(marks.numbers("e"))
        if len(done & interrupted) > seen:
            seen, last = len(done & interrupted), time.monotonic() - killed
            first = last if first is None else first
        if done >= interrupted | untouched:
            break
        time.sleep(0.1)
    return first, last
