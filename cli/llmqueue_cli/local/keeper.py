"""Runs the embedded server; outlives a killed `llmqueue up` by as long as workers need the store.

`up` starts it as `python -m llmqueue_cli.local.keeper SOCKET SERVER ARGUMENT…` and holds the other
end of its stdin. The keeper ends the server in order on SIGTERM, or when stdin has closed (`up` was
killed) and no client has been connected for a while: by then the workers have drained. A later `up`
that connects in the meantime keeps the server alive.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time

from llmqueue_cli.local.parentage import end_with_parent
from llmqueue_cli.local.respond import ask

_LOOK_SECONDS = 0.5
_ALONE_SECONDS = 3.0
_STOP_SECONDS = 30.0


def _nothing(_signal: int, _frame: object) -> None:
    """Only there to be called."""


def _clients(socket_path: str) -> int:
    """Connected clients other than the one that asks."""
    answer = ask(socket_path, b"CLIENT LIST\r\n")
    return max(0, answer.count(b" addr=") - 1)


def _wait(ended: int) -> None:
    """Return when stdin has closed or a child has ended (a byte on `ended`); sleeps until then."""
    while True:
        ready, _, _ = select.select([0, ended], [], [])
        if ended in ready or os.read(0, 1) == b"":
            return


def _end(server: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        server.terminate()
    try:
        server.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def _watch(server: subprocess.Popen[bytes], socket_path: str, ended: int) -> None:
    """Return when the server ended by itself, or is needed no more."""
    _wait(ended)
    alone_since = time.monotonic()
    while server.poll() is None and time.monotonic() - alone_since < _ALONE_SECONDS:
        time.sleep(_LOOK_SECONDS)
        try:
            if _clients(socket_path):
                alone_since = time.monotonic()
        except OSError:
            alone_since = time.monotonic()  # busy or paused: not known to be alone


def _on_term(_signal: int, _frame: object) -> None:
    raise SystemExit(0)


def keep(socket_path: str, command: list[str]) -> int:
    """Run the server until it is needed no more; returns its exit code where it ended by itself."""
    signal.signal(signal.SIGTERM, _on_term)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ended, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, _nothing)  # without a handler no byte is written
    server = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=end_with_parent(signal.SIGTERM),  # noqa: PLW1509 - one thread, one system call
    )
    try:
        _watch(server, socket_path, ended)
    finally:
        ended_by_itself = server.poll()
        if ended_by_itself is None:
            _end(server)
    return ended_by_itself or 0


if __name__ == "__main__":
    sys.exit(keep(sys.argv[1], sys.argv[2:]))
