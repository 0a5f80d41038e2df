"""The operator process: settings, logs, the wait for the CRD, kopf, probes, and how it ends."""

from __future__ import annotations

import asyncio
import logging as standard_logging
import signal
import sys
from typing import Any

import kopf
import structlog
from pydantic import ValidationError

from llmqueue import logging
from llmqueue.errors import UsageError
from llmqueue.probes import LoopWatch, ProbeServer
from llmqueue_operator.controller import Controller
from llmqueue_operator.errors import ApiError
from llmqueue_operator.exporter import registry as exported
from llmqueue_operator.handlers import configured_settings
from llmqueue_operator.handlers import registry as handlers
from llmqueue_operator.kube import Cluster, KubeClient
from llmqueue_operator.metrics import Metrics
from llmqueue_operator.settings import OperatorSettings

EXIT_USAGE = 2
EXIT_FAILED = 1
_CRD_SECONDS = 2.0

_log = structlog.get_logger()


def run() -> int:
    """Run the operator that the environment describes; returns its exit code."""
    try:
        settings = OperatorSettings()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    except ValidationError as exc:
        for error in exc.errors(include_url=False, include_input=False, include_context=False):
            name = "LLMQUEUE_OPERATOR_" + "_".join(map(str, error["loc"])).upper()
            print(f"{name}: {error['msg']}", file=sys.stderr)
        return EXIT_USAGE
    logging.configure(settings.log_level, settings.log_format, operator=settings.pod)
    standard_logging.getLogger("kopf").setLevel(standard_logging.WARNING)
    try:
        return asyncio.run(_serve(settings))
    except UsageError as exc:
        _log.error("settings-unusable", message=str(exc))
        return EXIT_USAGE


async def _serve(settings: OperatorSettings) -> int:
    watch, metrics = LoopWatch(), Metrics()
    watch.start(asyncio.get_running_loop())
    client = await KubeClient.connect()
    cluster = Cluster(client, watched=settings.watched)
    controller = Controller(settings, cluster, metrics)
    ready = asyncio.Event()
    server = _probes(settings, watch, metrics, controller, ready)
    try:
        await _wait_for_crd(cluster)
        await _operate(settings, controller, client, ready)
    except asyncio.CancelledError:
        return 0
    except Exception:  # an edge: kopf gives up on what it does not expect of the server
        _log.exception("watches-failed")
        return EXIT_FAILED
    finally:
        await asyncio.to_thread(server.stop)
        await client.close()
    if controller.failure is None:
        return 0
    if isinstance(controller.failure, UsageError):
        raise controller.failure
    _log.error("failed", error=repr(controller.failure), exc_info=controller.failure)
    return EXIT_FAILED


async def _operate(
    settings: OperatorSettings, controller: Controller, client: KubeClient, ready: asyncio.Event
) -> None:
    """Until a signal, or a failure of the controller."""
    scope: dict[str, Any] = (
        {"clusterwide": True} if settings.watched is None else {"namespaces": [settings.watched]}
    )
    await kopf.operator(
        registry=handlers(controller, client),
        settings=configured_settings(),
        standalone=True,
        stop_flag=controller.failed,
        ready_flag=ready,
        **scope,
    )


def _probes(
    settings: OperatorSettings,
    watch: LoopWatch,
    metrics: Metrics,
    controller: Controller,
    ready: asyncio.Event,
) -> ProbeServer:
    """Liveness: the loop, and whether the watches still bring news. Readiness: it has started;
    whether this replica leads does not matter."""

    def alive() -> str | None:
        if not watch.alive:
            return "the event loop is stuck"
        stale = controller.stale_watch
        return f"the watch of {stale} brings no news" if stale else None

    try:
        server = ProbeServer(
            {
                "/livez": alive,
                "/readyz": lambda: None if ready.is_set() else "not started yet",
            },
            exported(metrics),
            port=settings.health_port,
        )
    except OSError as exc:
        raise UsageError(f"health port {settings.health_port}: {exc.strerror}") from exc
    server.start()
    _log.info("health-served", port=server.port)
    return server


async def _wait_for_crd(cluster: Cluster) -> None:
    """kopf looks once which kinds there are; SIGTERM ends the wait."""
    loop, task, told = asyncio.get_running_loop(), asyncio.current_task(), ""
    if task is not None:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, task.cancel)
    try:
        while True:
            problem = "the CRD llmqueues.llmqueue.dev is not installed: apply it"
            try:
                if await cluster.serves_queues():
                    return
            except ApiError as exc:
                problem = str(exc)
            if problem != told:
                told = problem
                _log.warning("waiting", message=problem)
            await asyncio.sleep(_CRD_SECONDS)
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
