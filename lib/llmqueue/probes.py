"""/livez, /readyz and /metrics of a process, from a thread of their own.

A thread can say that the loop is stuck, which a server in the loop cannot, and costs an idle
process nothing.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from llmqueue.exposition import CONTENT_TYPE, exposition

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

    from prometheus_client import CollectorRegistry

STUCK_SECONDS = 30.0
_TICK_SECONDS = 2.0
_CLIENT_SECONDS = 5.0
_POLL_SECONDS = 0.5

Check = Callable[[], str | None]
"""What is wrong, or None; called in the server's threads."""


class LoopWatch:
    """Knows when the event loop last turned. `clock` is monotonic."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ticked_at = clock()
        self._handle: asyncio.TimerHandle | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._ticked_at = self._clock()
        self._handle = loop.call_later(_TICK_SECONDS, self.start, loop)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()

    @property
    def alive(self) -> bool:
        return self._clock() - self._ticked_at < STUCK_SECONDS


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    request_queue_size = 16


class _DualStackServer(_Server):
    """For all addresses: pods of a cluster may have IPv6 ones only."""

    address_family = socket.AF_INET6

    def server_bind(self) -> None:
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()


class _Handler(WSGIRequestHandler):
    timeout = _CLIENT_SECONDS

    def log_message(self, format: str, *args: Any) -> None:
        """Probes are no news."""


class ProbeServer:
    """Serves `checks` (path → check) and the metrics of `registry`.

    `port` 0 takes a free one, see `port` afterwards. Raises OSError where it is taken.
    """

    def __init__(
        self,
        checks: Mapping[str, Check],
        registry: CollectorRegistry,
        *,
        port: int,
        host: str = "",
    ) -> None:
        self._checks, self._registry = checks, registry
        server = _DualStackServer if not host and socket.has_dualstack_ipv6() else _Server
        self._server = make_server(host, port, self._answer, server, _Handler)
        self.port = int(self._server.server_port)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_POLL_SECONDS,), name="probes", daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _answer(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path == "/metrics":
            body = exposition(self._registry.collect())
            return _answer(start_response, "200 OK", body, CONTENT_TYPE)
        if path not in self._checks:
            return _text(start_response, "404 Not Found", "not found")
        problem = self._checks[path]()
        if problem is None:
            return _text(start_response, "200 OK", "ok")
        return _text(start_response, "503 Service Unavailable", problem)


def _text(start_response: StartResponse, status: str, text: str) -> list[bytes]:
    return _answer(start_response, status, f"{text}\n".encode(), "text/plain; charset=utf-8")


def _answer(
    start_response: StartResponse, status: str, body: bytes, content_type: str
) -> list[bytes]:
    start_response(status, [("Content-Type", content_type), ("Content-Length", str(len(body)))])
    return [body]
