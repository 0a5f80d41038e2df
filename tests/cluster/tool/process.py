"""The processes of the cluster, recorded so that any later run finds exactly them again."""

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from cluster.tool import layout
from cluster.tool.errors import ClusterDown


@dataclass(frozen=True, slots=True)
class Process:
    """`boot` and `started_ticks` tell it from a later process that got the same pid."""

    name: str
    arguments: list[str]
    pid: int
    boot: str
    started_ticks: int

    def alive(self) -> bool:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, os.WNOHANG)  # ours to reap if this run started it
        return self.boot == _boot() and self.started_ticks == _started_ticks(self.pid)

    def signal(self, number: signal.Signals) -> None:
        if self.alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


def start(name: str, arguments: Sequence[str | Path]) -> Process:
    """Starts it as a daemon that outlives us, and records it."""
    words = [str(argument) for argument in arguments]
    layout.LOGS.mkdir(parents=True, exist_ok=True)
    layout.PROCESSES.mkdir(parents=True, exist_ok=True)
    _keep_descriptors_to_ourselves()
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    # Not subprocess: nobody waits for it, and a Popen given up warns, which the tests make an error.
    pid = os.posix_spawn(
        words[0],
        words,
        # Nothing of ours: a proxy or a company's settings would change what the cluster does.
        {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(layout.RUN)},
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(layout.LOGS / f"{name}.log"), flags, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )
    process = Process(
        name=name,
        arguments=words,
        pid=pid,
        boot=_boot(),
        started_ticks=_started_ticks(pid) or 0,
    )
    (layout.PROCESSES / f"{name}.json").write_text(json.dumps(asdict(process)))
    return process


def recorded() -> list[Process]:
    """All that were started and not stopped, alive or not, the oldest first."""
    processes: list[Process] = []
    for path in layout.PROCESSES.glob("*.json"):
        with contextlib.suppress(ValueError, TypeError):  # cut off by a crash
            processes.append(Process(**json.loads(path.read_text())))
    return sorted(processes, key=lambda process: process.started_ticks)


def find(name: str) -> Process:
    """Raises ClusterDown if none of that name was started."""
    for process in recorded():
        if process.name == name:
            return process
    raise ClusterDown(f"no {name} was started here: run `make cluster-up`")


def stop(processes: Iterable[Process], *, grace_seconds: float = 10) -> None:
    """Ends all at once: SIGTERM, and SIGKILL for those that outlast the grace."""
    left = list(processes)
    for process in left:
        process.signal(signal.SIGTERM)
        process.signal(signal.SIGCONT)  # a test may have paused it
    deadline = time.monotonic() + grace_seconds
    while left := [process for process in left if process.alive()]:
        if time.monotonic() > deadline:
            for process in left:
                process.signal(signal.SIGKILL)
        time.sleep(0.02)


def _started_ticks(pid: int) -> int | None:
    """None for a process that is gone or only waits to be reaped."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()  # the name before it may hold anything
    return None if fields[0] in "ZX" else int(fields[19])


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _keep_descriptors_to_ourselves() -> None:
    """A daemon that inherits the caller's pipe would keep its reader waiting for ever."""
    for entry in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if int(entry) > 2:
                os.set_inheritable(int(entry), False)
