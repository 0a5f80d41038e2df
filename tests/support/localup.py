"""`llmqueue up` as the process that a user runs, and everything below it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Self

from llmqueue.store import RedisStore, connect

LLMQUEUE = (sys.executable, "-m", "llmqueue_cli")


def _stat(pid: int) -> list[str]:
    """The fields of /proc/<pid>/stat from the state on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def alive(pid: int) -> bool:
    try:
        return _stat(pid)[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def born(pid: int) -> float:
    """When a process was started, by CLOCK_BOOTTIME."""
    return int(_stat(pid)[19]) / os.sysconf("SC_CLK_TCK")


def children_of(pid: int) -> dict[int, str]:
    """Live child processes: pid → command line."""
    found: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit():
                state, parent = _stat(int(entry.name))[:2]
                if int(parent) == pid and state != "Z":
                    line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    found[int(entry.name)] = line
    return found


class LocalUp:
    """One machine: a data folder, a manifest, and `up` on them.

    `async with LocalUp(folder) as machine:` leaves no process behind.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.manifest = folder / "queue.yaml"
        self.processes: list[subprocess.Popen[bytes]] = []
        self.log = folder / "log"

    # ------------------------------------------------------------ commands

    async def up(self, *options: str) -> subprocess.Popen[bytes]:
        """Start `up` and wait until it serves."""
        process = self.start(*options)
        await self.until(lambda: (self.data / "up.json").exists() and self._is_mine(process))
        return process

    def start(self, *options: str) -> subprocess.Popen[bytes]:
        command = [*LLMQUEUE, "up", "-f", str(self.manifest), "--data-dir", str(self.data)]
        with self.log.open("ab") as log:
            process = subprocess.Popen([*command, *options], stderr=log, stdout=log)
        self.processes.append(process)
        return process

    def _is_mine(self, process: subprocess.Popen[bytes]) -> bool:
        return bool(json.loads((self.data / "up.json").read_text())["pid"] == process.pid)

    async def run(self, *args: str, stdin: str = "") -> tuple[int, str, str]:
        """One other command on the same data folder."""
        process = await asyncio.create_subprocess_exec(
            *LLMQUEUE, *args, "--data-dir", str(self.data),
            stdin=-1, stdout=-1, stderr=-1,
        )  # fmt: skip
        out, err = await process.communicate(stdin.encode())
        return process.returncode or 0, out.decode(), err.decode()

    async def end(self, process: subprocess.Popen[bytes], *, seconds: float = 30.0) -> int:
        """Wait for its end; returns its exit code."""
        await self.until(lambda: process.poll() is not None, seconds=seconds)
        return process.returncode

    # ------------------------------------------------------------ what is seen

    def said(self) -> str:
        return self.log.read_text()

    def events(self, name: str) -> list[dict[str, Any]]:
        """What `up --json` said of one kind."""
        lines = [json.loads(line) for line in self.said().splitlines() if line.startswith("{")]
        return [line for line in lines if line["event"] == name]

    async def until(self, true: Callable[[], Any], *, seconds: float = 30.0) -> None:
        deadline = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < deadline, f"did not come true in time; log:\n{self.said()}"
            await asyncio.sleep(0.05)

    @asynccontextmanager
    async def store(self) -> AsyncIterator[RedisStore]:
        store = await connect(json.loads((self.data / "up.json").read_text())["redis_url"])
        try:
            yield store
        finally:
            await store.close()

    async def status(self, queue: str) -> dict[str, Any]:
        async with self.store() as store:
            return await store.queue_status(queue)

    # ------------------------------------------------------------ processes

    def workers(self, process: subprocess.Popen[bytes]) -> list[int]:
        return [pid for pid, line in children_of(process.pid).items() if "llmqueue_worker" in line]

    def server(self, process: subprocess.Popen[bytes]) -> int:
        """The embedded server below `up`."""
        (pid,) = (
            pid
            for pid in self.everything_below(process)
            if Path(f"/proc/{pid}/exe").resolve().name == "valkey-server"
        )
        return pid

    def everything_below(self, process: subprocess.Popen[bytes]) -> set[int]:
        below: set[int] = set()
        wave = [process.pid]
        while wave:
            wave = [pid for parent in wave for pid in children_of(parent)]
            below.update(wave)
        return below

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        for process in self.processes:
            below = self.everything_below(process) if process.poll() is None else set[int]()
            with suppress(ProcessLookupError):
                process.kill()
            process.wait()
            for pid in below:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
