"""LLMQueue → the environment of its worker processes, as WorkerSettings reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from llmqueue.errors import InvalidResource
from llmqueue.profiles import PROFILES
from llmqueue.spec.convert import budget_config, queue_id
from llmqueue.spec.resource import LLMQueue

PREFIX = "LLMQUEUE_"


def base_url(queue: LLMQueue) -> str:
    """Where calls go. Raises InvalidResource where neither resource nor provider type says."""
    provider = queue.spec.provider
    url = provider.base_url or PROFILES[provider.type].default_base_url
    if url is None:
        raise InvalidResource(
            f"{queue_id(queue)}: spec.provider.baseURL: is required for type {provider.type}"
        )
    return url.rstrip("/")


def worker_environment(
    queue: LLMQueue,
    *,
    redis_url: str | None,
    api_key_file: Path | None,
    worker_uid: str | None,
    health_port: int | None,
    log_level: Literal["debug", "info", "warning", "error"] = "info",
    log_format: Literal["json", "console"] = "json",
) -> dict[str, str]:
    """All variables of a worker of this queue; what is None is left out.

    `redis_url` or `worker_uid` None: whoever starts the process adds it (a URL with a password is
    read from a file, a pod's uid is not known before).
    Raises InvalidResource where it is not known which address to call.
    """
    spec = queue.spec
    values: dict[str, object] = {
        "redis_url": redis_url,
        "queue": queue_id(queue),
        "worker_uid": worker_uid,
        "provider": spec.provider.type.value,
        "base_url": base_url(queue),
        "api_key_file": api_key_file,
        "idempotency": spec.provider.idempotency,
        "slots": spec.scaling.slots_per_worker,
        "connect_seconds": spec.timeouts.connect_seconds,
        "request_seconds": spec.timeouts.request_seconds,
        "stream_idle_seconds": spec.timeouts.stream_idle_seconds,
        "attempt_seconds": spec.timeouts.attempt_seconds,
        "lease_seconds": budget_config([queue]).lease_seconds,
        "drain_seconds": spec.grace_periods.drain_seconds,
        "handlers": spec.worker.handlers,
        "max_jobs": spec.worker.max_jobs,
        "max_seconds": spec.worker.max_seconds,
        "max_memory_mib": spec.worker.max_memory_mib,
        "health_port": health_port,
        "log_level": log_level,
        "log_format": log_format,
    }
    return {
        f"{PREFIX}{name.upper()}": str(value) for name, value in values.items() if value is not None
    }
