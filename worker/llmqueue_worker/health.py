"""/livez, /readyz and /metrics, from a thread of its own.

A thread can say that the loop is stuck, which a server in the loop cannot, and costs an idle
process nothing. Liveness looks at the loop only: restarting a worker because Redis or the provider
is away would destroy results that wait to be settled.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from llmqueue_worker.metrics import Stats, registry

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

STUCK_SECONDS = 30.0
_TICK_SECONDS = 2.0
_CLIENT_SECONDS = 5.0
_POLL_SECONDS = 0.5


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


class _Handler(WSGIRequestHandler):
    timeout = _CLIENT_SECONDS

    def log_message(self, format: str, *args: Any) -> None:
        """Probes are no news."""


class Health:
    """The server; `port` 0 takes a free one, see `port` afterwards."""

    def __init__(self, stats: Stats, watch: LoopWatch, *, port: int, host: str = "") -> None:
        import prometheus_client  # noqa: PLC0415 - only where it is served

        self._stats, self._watch = stats, watch
        exposition: Any = prometheus_client
        self._metrics = exposition.make_wsgi_app(registry(stats), disable_compression=True)
        self._server = make_server(host, port, self._answer, _Server, _Handler)
        self.port = int(self._server.server_port)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_POLL_SECONDS,), name="health", daemon=True
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
            answer: Iterable[bytes] = self._metrics(environ, start_response)
            return answer
        checks = {
            "/livez": (self._watch.alive, "the event loop is stuck"),
            "/readyz": (self._stats.ready, "no claim was answered yet"),
        }
        if path not in checks:
            return _text(start_response, "404 Not Found", "not found")
        good, why = checks[path]
        if good:
            return _text(start_response, "200 OK", "ok")
        return _text(start_response, "503 Service Unavailable", why)


def _text(start_response: StartResponse, status: str, text: str) -> list[bytes]:
    body = f"{text}\n".encode()
    start_response(
        status, [("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(body)))]
    )
    return [body]
