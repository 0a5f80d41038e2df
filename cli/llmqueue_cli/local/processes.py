"""Worker processes of one queue: started, joined to heartbeats, ended by a real SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
import uuid
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable, Collection, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path

from llmqueue.credentials import USUAL_VARIABLES
from llmqueue.spec.environment import PREFIX as SETTINGS_PREFIX
from llmqueue_cli.local.journal import Journal
from llmqueue_cli.local.parentage import end_with_parent
from llmqueue_operator.planning import PodPhase, PodView

STEADY_SECONDS = 10.0
"""A worker that lived this long was no failure to start: it is replaced at once."""
_MAX_BACK_OFF_SECONDS = 60.0
_NOT_FOR_WORKERS = (*USUAL_VARIABLES.values(), SETTINGS_PREFIX)


@dataclass(frozen=True, slots=True)
class WorkerKind:
    """How a queue's workers are started; a changed one replaces those that run.

    `environment` is complete but for the uid; `grace_seconds` runs from SIGTERM to SIGKILL. What
    workers print goes to `log_file`, else to the stderr of `up`.
    """

    queue: str
    environment: Mapping[str, str]
    grace_seconds: float
    log_file: Path | None = None


@dataclass(frozen=True, slots=True)
class WorkerEnd:
    """How a worker process ended. `drained`: it was asked to and did so in order; `in_flight`:
    calls that its last heartbeat showed."""

    queue: str
    pid: int
    seconds: float
    drained: bool
    in_flight: int


@dataclass(slots=True)
class _Worker:
    uid: str
    kind: WorkerKind
    process: Process
    started: float
    seen: bool = False
    in_flight: int = 0
    kill_at: float | None = None
    """Set with SIGTERM: when patience ends."""


def _environment(kind: WorkerKind, uid: str) -> dict[str, str]:
    """The parent's environment without keys and settings, and what the worker is told.

    A worker reads its settings in any case of letters, and what its queue leaves out is off: a key
    file of the parent would else go to a provider that needs no key.
    """
    kept = {n: v for n, v in os.environ.items() if not n.upper().startswith(_NOT_FOR_WORKERS)}
    return {**kept, **kind.environment, "LLMQUEUE_WORKER_UID": uid}


@contextlib.contextmanager
def _output(log_file: Path | None) -> Generator[int]:
    """A descriptor for what a worker prints."""
    if log_file is None:
        yield sys.__stderr__.fileno() if sys.__stderr__ else DEVNULL
        return
    with log_file.open("ab") as file:
        yield file.fileno()


class WorkerPool:
    """All worker processes of one queue, and places that wait out a back-off after crashes."""

    def __init__(
        self,
        kind: WorkerKind,
        journal: Journal,
        *,
        on_exit: Callable[[WorkerEnd], None],
        clock: Callable[[], float] = time.monotonic,
        command: Collection[str] = (sys.executable, "-m", "llmqueue_worker"),
    ) -> None:
        self._kind = kind
        self._journal = journal
        self._on_exit = on_exit
        self._clock = clock
        self._command = tuple(command)
        self._workers: dict[str, _Worker] = {}
        self._watchers: set[asyncio.Task[None]] = set()
        self._places: dict[str, float] = {}
        """Uid of a place that is held → when its worker may start."""
        self._failures = 0
        self.start_seconds: float | None = None
        """How long the last worker took from its start to its first heartbeat."""

    # ------------------------------------------------------------ what is there

    def observe(self, heartbeats: Mapping[str, int]) -> None:
        """Join processes to the heartbeats of this tick: uid → calls in flight."""
        for worker in self._workers.values():
            if worker.uid not in heartbeats:
                continue
            worker.in_flight = heartbeats[worker.uid]
            age = self._clock() - worker.started
            if not worker.seen:
                worker.seen = True
                self.start_seconds = age
            if age >= STEADY_SECONDS:
                self._failures = 0

    def pods(self) -> tuple[PodView, ...]:
        """As the planner wants to see them."""
        now = self._clock()
        running = tuple(
            PodView(w.uid, str(w.process.pid), _phase(w), now - w.started, ready=w.seen)
            for w in self._workers.values()
        )
        held = tuple(
            PodView(uid, "waiting to start again", PodPhase.FAILED, 0.0, ready=False)
            for uid in self._places
        )
        return running + held

    @property
    def replicas(self) -> int:
        """Processes that were not asked to end, and places held for one."""
        asked = sum(worker.kill_at is None for worker in self._workers.values())
        return asked + len(self._places)

    @property
    def alive(self) -> int:
        return len(self._workers)

    # ------------------------------------------------------------ changes

    def renew(self, kind: WorkerKind) -> None:
        """Let workers that were started otherwise drain; the next ticks start new ones."""
        if kind == self._kind:
            return
        self._kind = kind
        for worker in self._workers.values():
            self._terminate(worker)

    async def apply(self, *, replicas: int, remove: Collection[str]) -> None:
        """Let the named ones go, then start what is missing."""
        for uid in remove:
            self._places.pop(uid, None)
            if uid in self._workers:
                self._terminate(self._workers[uid])
        self._enforce_grace()
        for uid in [uid for uid, due in self._places.items() if due <= self._clock()]:
            del self._places[uid]
            await self._start()
        while self.replicas < replicas:
            if self._failures:
                self._hold_place()
            else:
                await self._start()

    async def drain(self) -> None:
        """SIGTERM to all; returns when the last one has gone."""
        self._places.clear()
        for worker in self._workers.values():
            self._terminate(worker)
        while self._workers:
            self._enforce_grace()
            await asyncio.wait(self._watchers, timeout=0.5, return_when=asyncio.FIRST_COMPLETED)

    def kill(self) -> None:
        """The last resort: nothing may be left behind."""
        for worker in self._workers.values():
            self._signal(worker, signal.SIGKILL)

    def _hold_place(self) -> None:
        delay = min(_MAX_BACK_OFF_SECONDS, 2.0 ** (self._failures - 1))
        self._places[str(uuid.uuid4())] = self._clock() + delay

    async def _start(self) -> None:
        uid, kind = str(uuid.uuid4()), self._kind
        # A session of its own: Ctrl-C in the terminal is for `up`, which then drains its workers.
        with _output(kind.log_file) as output:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                env=_environment(kind, uid),
                stdin=DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=end_with_parent(signal.SIGTERM),
            )
        worker = _Worker(uid, kind, process, self._clock())
        self._workers[uid] = worker
        watcher = asyncio.create_task(self._watch(worker))
        self._watchers.add(watcher)
        watcher.add_done_callback(self._watchers.discard)

    async def _watch(self, worker: _Worker) -> None:
        code = await worker.process.wait()
        self._workers.pop(worker.uid, None)
        lived = self._clock() - worker.started
        if worker.kill_at is None:
            self._failures = 0 if lived >= STEADY_SECONDS or code == 0 else self._failures + 1
            self._journal.say(
                "worker-ended",
                f"worker {worker.process.pid} ended unasked after {lived:.0f} s ({_ending(code)})",
                subject=worker.kind.queue,
                pid=worker.process.pid,
                exit_code=code,
            )
        drained = worker.kill_at is not None and code == 0
        self._on_exit(
            WorkerEnd(worker.kind.queue, worker.process.pid, lived, drained, worker.in_flight)
        )

    def _terminate(self, worker: _Worker) -> None:
        if worker.kill_at is None:
            worker.kill_at = self._clock() + worker.kind.grace_seconds
            self._signal(worker, signal.SIGTERM)

    def _enforce_grace(self) -> None:
        for worker in self._workers.values():
            if worker.kill_at is not None and self._clock() >= worker.kill_at:
                self._journal.say(
                    "worker-killed",
                    f"worker {worker.process.pid} did not end within its grace period: killed",
                    subject=worker.kind.queue,
                    pid=worker.process.pid,
                )
                self._signal(worker, signal.SIGKILL)

    @staticmethod
    def _signal(worker: _Worker, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            worker.process.send_signal(number)


def _phase(worker: _Worker) -> PodPhase:
    if worker.kill_at is not None:
        return PodPhase.TERMINATING
    return PodPhase.RUNNING if worker.seen else PodPhase.PENDING


def _ending(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"
