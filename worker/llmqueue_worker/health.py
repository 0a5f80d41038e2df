"""/livez, /readyz and /metrics, served from the worker's own loop.

Liveness is the event loop only: an answer at all is the proof. Never Redis or the provider: a
restart would destroy finished results that wait to be settled.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Generator

import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from llmqueue_worker.metrics import WorkerMetrics


def health_app(ready: Callable[[], bool], metrics: WorkerMetrics) -> Starlette:
    async def livez(_: Request) -> Response:
        return PlainTextResponse("ok")

    async def readyz(_: Request) -> Response:
        if ready():
            return PlainTextResponse("ok")
        return PlainTextResponse("no claim was answered yet", status_code=503)

    async def show_metrics(_: Request) -> Response:
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)

    return Starlette(
        routes=[
            Route("/livez", livez),
            Route("/readyz", readyz),
            Route("/metrics", show_metrics),
        ]
    )


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Signals are the worker's: it drains."""
        yield


async def serve_health(port: int, ready: Callable[[], bool], metrics: WorkerMetrics) -> None:
    """Serve until cancelled."""
    config = uvicorn.Config(
        health_app(ready, metrics),
        host="0.0.0.0",  # noqa: S104 - the kubelet asks the pod's address
        port=port,
        log_level="error",
        access_log=False,
    )
    server = _Server(config)
    try:
        await server.serve()
    except asyncio.CancelledError:
        server.should_exit = True
        await server.shutdown()
        raise
