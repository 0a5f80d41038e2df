"""Who is compared, how each is started, and what each promises after kill -9."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"
REQUIREMENTS = HERE / "requirements"
ENVIRONMENTS = HERE.parent / ".venv-peers"
SLOTS = 32


@dataclass(frozen=True, slots=True)
class System:
    """One row of the table.

    Attributes:
        environment: name of its requirements file and virtual environment; "" = this one.
        worker: its worker command, as its documentation starts it; `{bin}` is the environment's
            bin folder.
        slots: how many jobs one worker process runs at once.
        survives: jobs of a worker that was killed run again, sooner or later.
        promise: when they do, by its defaults or as configured here.
    """

    name: str
    environment: str
    distribution: str
    program: str
    worker: tuple[str, ...]
    slots: int
    concurrency: str
    survives: bool
    promise: str

    @property
    def bin(self) -> Path:
        if not self.environment:
            return Path(sys.executable).parent
        return ENVIRONMENTS / self.environment / "bin"

    @property
    def python(self) -> Path:
        return self.bin / "python"

    def worker_command(self) -> list[str]:
        return [part.format(bin=self.bin) for part in self.worker]

    def producer_command(self, jobs: int) -> list[str]:
        return [str(self.python), str(PROGRAMS / self.program), "produce", str(jobs)]


def _ours(name: str, kind: str, promise: str) -> System:
    program = "llmqueue_program.py"
    return System(
        name,
        "",
        "llmqueue",
        program,
        ("{bin}/python", str(PROGRAMS / program), "work", kind),
        SLOTS,
        f"{SLOTS} coroutines",
        survives=True,
        promise=promise,
    )


def _peer(
    name: str,
    program: str,
    worker: tuple[str, ...],
    concurrency: str,
    *,
    distribution: str = "",
    slots: int = SLOTS,
    survives: bool = True,
    promise: str,
) -> System:
    return System(
        name,
        name,
        distribution or name,
        program,
        worker,
        slots,
        concurrency,
        survives=survives,
        promise=promise,
    )


_THREADS = 8
_COROUTINES = f"{SLOTS} coroutines"

SYSTEMS: tuple[System, ...] = (
    _ours("llmqueue", "noop", "lease of 10 s, renewed every 3 s"),
    _ours(
        "llmqueue (sent + ledger)",
        "sent",
        "lease of 10 s; a sent call may be paid already: repeated once below 5 cents, else review",
    ),
    _peer(
        "dramatiq",
        "dramatiq_program.py",
        (
            "{bin}/dramatiq",
            "dramatiq_program",
            "--processes",
            "1",
            "--threads",
            str(_THREADS),
            "--skip-logging",
        ),
        f"1 process, {_THREADS} threads (its default)",
        slots=_THREADS,
        promise="60 s without a heartbeat, then by chance, at one command in 1,000",
    ),
    _peer(
        "taskiq",
        "taskiq_program.py",
        (
            "{bin}/taskiq",
            "worker",
            "taskiq_program:broker",
            "--workers",
            "1",
            "--max-async-tasks",
            str(SLOTS),
            "--log-level",
            "WARNING",
            "--max-prefetch",
            str(SLOTS),
        ),
        f"{_COROUTINES}, as many prefetched",
        promise="idle_timeout of 600 s",
    ),
    _peer(
        "bullmq",
        "bullmq_program.py",
        ("{bin}/python", str(PROGRAMS / "bullmq_program.py"), "work"),
        _COROUTINES,
        promise="lock of 30 s, looked at every 30 s",
    ),
    _peer(
        "arq",
        "arq_program.py",
        ("{bin}/arq", "arq_program.WorkerSettings"),
        f"{_COROUTINES}, polling every 50 ms",
        promise="job timeout + 10 s = 310 s",
    ),
    _peer(
        "celery",
        "celery_program.py",
        ("{bin}/celery", "-A", "celery_program", "worker", "-l", "WARNING", "-P", "solo"),
        "1 job at a time, pool `solo`",
        slots=1,
        promise="with acks_late: visibility_timeout of 3600 s; without: lost",
    ),
    _peer(
        "saq",
        "saq_program.py",
        ("{bin}/saq", "saq_program.settings"),
        _COROUTINES,
        survives=False,
        promise="swept after its timeout; aborted for good unless enqueued with retries > 1",
    ),
    _peer(
        "rq",
        "rq_program.py",
        ("{bin}/python", str(PROGRAMS / "rq_program.py"), "work"),
        "1 job at a time, forked (its default)",
        slots=1,
        promise="heartbeat and job timeout run out, looked at every 600 s",
    ),
)


def chosen(names: str | None) -> tuple[System, ...]:
    """Systems by comma-separated names; all without. Raises SystemExit for an unknown one."""
    if not names:
        return SYSTEMS
    wanted = [name.strip() for name in names.split(",")]
    known = {system.name: system for system in SYSTEMS}
    for name in wanted:
        if name not in known:
            raise SystemExit(f"no system {name!r}; there are: {', '.join(known)}")
    return tuple(known[name] for name in wanted)
