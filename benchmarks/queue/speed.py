"""Enqueue and process rates and CPU per job of one system, on a fresh server."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from benchmarks.processes import cpu_seconds, session_cpu_seconds, wait_until
from benchmarks.queue.launch import produce, worker
from benchmarks.queue.marks import Marks
from benchmarks.queue.systems import System
from benchmarks.server import Server

WARM_SHARE = 0.1
"""The clocks start when this share of the jobs is done: no system's start-up counts."""
_LAST_ACKS_SECONDS = 0.25
_START_SECONDS = 60
_LONGEST_SECONDS = 600


@dataclass(frozen=True, slots=True)
class Speed:
    """Jobs a second; CPU seconds per 1,000 jobs (worker with its children; its Valkey); runs of
    jobs that had run already."""

    enqueue_per_second: float
    enqueue_cpu_per_1k: float
    process_per_second: float
    worker_cpu_per_1k: float
    valkey_cpu_per_1k: float
    repeated: float = 0


def measure(system: System, jobs: int) -> Speed:
    """One round. Raises RuntimeError where a job did not run."""
    with (
        Server() as server,
        tempfile.TemporaryDirectory(prefix="llmqueue-bench-") as folder,
    ):
        marks = Marks(Path(folder) / "marks")
        produced = produce(system, server.url, jobs)
        with worker(system, server.url, marks.path) as process:
            processed, cpu, valkey = _watch(system, marks, jobs, process.pid, server.pid)
        repeated = _repeated(system, marks, jobs)
    return Speed(
        enqueue_per_second=jobs / produced["seconds"],
        enqueue_cpu_per_1k=produced["cpu_seconds"] / jobs * 1000,
        process_per_second=processed,
        worker_cpu_per_1k=cpu,
        valkey_cpu_per_1k=valkey,
        repeated=repeated,
    )


def _watch(
    system: System, marks: Marks, jobs: int, leader: int, server: int
) -> tuple[float, float, float]:
    warm = max(1, round(jobs * WARM_SHARE))
    if not wait_until(lambda: marks.count() >= warm, seconds=_START_SECONDS):
        raise RuntimeError(
            f"{system.name}: {marks.count()} jobs in {_START_SECONDS} s{_log(marks)}"
        )
    began, first = time.perf_counter(), marks.count()
    cpu, valkey = session_cpu_seconds(leader), cpu_seconds(server)
    if not wait_until(lambda: marks.count() >= jobs, seconds=_LONGEST_SECONDS):
        raise RuntimeError(f"{system.name}: stopped at {marks.count()} of {jobs} jobs{_log(marks)}")
    seconds = time.perf_counter() - began
    # What follows the last job belongs to it: acknowledgements, results.
    time.sleep(_LAST_ACKS_SECONDS)
    thousands = (jobs - first) / 1000
    return (
        (jobs - first) / seconds,
        (session_cpu_seconds(leader) - cpu) / thousands,
        (cpu_seconds(server) - valkey) / thousands,
    )


def _repeated(system: System, marks: Marks, jobs: int) -> int:
    numbers = marks.numbers("e")
    if set(numbers) != set(range(jobs)):
        raise RuntimeError(f"{system.name}: only {len(set(numbers))} of {jobs} jobs ran")
    return len(numbers) - jobs


def _log(marks: Marks) -> str:
    log = marks.path.with_suffix(".log")
    return f"\n{log.read_text(errors='replace')[-2000:]}" if log.exists() else ""


def median(rounds: Sequence[Speed]) -> Speed:
    """Median of each figure over the rounds."""
    return Speed(
        **{
            field.name: statistics.median(getattr(one, field.name) for one in rounds)
            for field in fields(Speed)
        }
    )
