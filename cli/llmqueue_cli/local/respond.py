"""The few words of the Redis protocol that are said to the embedded server itself.

Clients talk to it through the store; this is for who runs it: alive, who is connected, stop.
"""

from __future__ import annotations

import contextlib
import socket

_TIMEOUT_SECONDS = 1.0


def ask(socket_path: str, command: bytes) -> bytes:
    """One inline command; the whole reply, bulk replies without their header.

    Raises OSError where nobody answers in time.
    """
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(_TIMEOUT_SECONDS)
        link.connect(socket_path)
        link.sendall(command)
        reply = link.recv(65_536)
        if not reply.startswith(b"$"):
            return reply
        header, _, body = reply.partition(b"\r\n")
        size = max(0, int(header[1:]))  # -1 is a null
        while len(body) < size:
            more = link.recv(65_536)
            if not more:
                raise ConnectionResetError("the server closed the connection")
            body += more
        return body[:size]


def answers(socket_path: str) -> bool:
    """Whether the server is up and has loaded its data."""
    try:
        return ask(socket_path, b"PING\r\n").startswith(b"+PONG")
    except OSError:
        return False


def shut_down(socket_path: str) -> None:
    """Ask the server to write out its append-only file and end."""
    with contextlib.suppress(OSError):
        ask(socket_path, b"SHUTDOWN\r\n")
