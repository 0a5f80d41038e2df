"""A worker as the real process it is in production, and what it left behind."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Self, TypeVar

_START_SECONDS = 30.0
_POLL_SECONDS = 0.02
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)

Found = TypeVar("Found")


def _die_with_parent() -> None:
    if sys.platform == "linux":
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


async def eventually(
    ask: Callable[[], Awaitable[Found]], *, seconds: float = 30.0, what: str = "the condition"
) -> Found:
    """The first truthy answer of `ask`; an AssertionError after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        found = await ask()
        if found:
            return found
        assert time.monotonic() < deadline, f"{what} did not come true in {seconds} s: {found!r}"
        await asyncio.sleep(_POLL_SECONDS)


class WorkerProcess:
    """`async with WorkerProcess(folder, redis_url=…, base_url=…, slots=3) as worker: …`

    Settings are the worker's, in lower case. A killed test process takes the worker with it.
    """

    def __init__(
        self, folder: Path, *, uid: str = "pod-a", cwd: Path | None = None, **settings: Any
    ) -> None:
        self.uid = uid
        self._cwd = cwd
        self._log_path = folder / f"{uid}.log"
        self._settings = {
            "queue": "default/q",
            "provider": "openai-compatible",
            "lease_seconds": 2,
            "drain_seconds": 30,
            "worker_uid": uid,
            **settings,
        }
        self._process: subprocess.Popen[bytes] | None = None

    def spawn(self) -> None:
        """Start it; returns at once."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("LLMQUEUE_")}
        environment |= {f"LLMQUEUE_{k.upper()}": str(v) for k, v in self._settings.items()}
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "llmqueue_worker"],
                env=environment,
                cwd=self._cwd,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - only one prctl call
            )

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "the worker was not started"
        return self._process

    @property
    def pid(self) -> int:
        return self.process.pid

    def text(self) -> str:
        """All it ever logged."""
        return self._log_path.read_text()

    def log(self, event: str) -> list[dict[str, Any]]:
        """Its log lines of one event."""
        lines = [json.loads(line) for line in self.text().splitlines() if line.startswith("{")]
        return [line for line in lines if line["event"] == event]

    def cpu_seconds(self) -> float:
        """Processor time used so far, user and system."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_mib(self) -> float:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def catches(self, number: signal.Signals) -> bool:
        """The process has a handler of its own for this signal."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        mask = next(line for line in status.splitlines() if line.startswith("SigCgt"))
        return bool(int(mask.split()[1], 16) >> (number - 1) & 1)

    async def ready(self) -> Self:
        """Wait until it has started its work."""

        async def started() -> bool:
            code = self.process.poll()
            assert code is None, f"the worker ended with {code}:\n{self.text()[-2000:]}"
            return bool(self.log("started"))

        await eventually(started, seconds=_START_SECONDS, what="a started worker")
        return self

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait()

    async def exit_code(self, *, seconds: float = 20.0) -> int:
        """Wait for its end."""
        return await asyncio.to_thread(self.process.wait, seconds)

    async def __aenter__(self) -> Self:
        self.spawn()
        try:
            return await self.ready()
        except BaseException:
            self.kill()
            raise

    async def __aexit__(self, *exc: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()
