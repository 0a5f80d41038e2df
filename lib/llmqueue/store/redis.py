"""The store on Redis or Valkey."""

from __future__ import annotations

from llmqueue.errors import StoreMisconfigured
from llmqueue.store.batch_part import BatchPart
from llmqueue.store.connection import translated
from llmqueue.store.event_part import EventPart
from llmqueue.store.executor import Executor
from llmqueue.store.intake_part import IntakePart
from llmqueue.store.planner_part import PlannerPart
from llmqueue.store.worker_part import WorkerPart

_OLDEST = {"redis": (7, 0), "valkey": (8, 0)}


class RedisStore(WorkerPart, PlannerPart, IntakePart, EventPart, BatchPart):
    """Implements `Store`; one instance per process, usable from one event loop."""

    def __init__(self, url: str) -> None:
        self._redis = Executor(url)

    async def check(self) -> list[str]:
        """Verify what jobs depend on; returns warnings.

        Raises StoreMisconfigured where the server is too old or may evict jobs.
        """
        with translated():
            info = await self._redis.client.info()
            policy = (await self._redis.client.config_get("maxmemory-policy")).get(
                "maxmemory-policy", "noeviction"
            )
        kind = "valkey" if "valkey_version" in info else "redis"
        version = str(info.get(f"{kind}_version", "0.0"))
        if tuple(int(part) for part in version.split(".")[:2]) < _OLDEST[kind]:
            oldest = ".".join(map(str, _OLDEST[kind]))
            raise StoreMisconfigured(f"{kind} {version} is too old: {oldest} or newer is needed")
        if policy != "noeviction":
            raise StoreMisconfigured(
                f"maxmemory-policy is {policy!r}: Redis could drop jobs; set it to 'noeviction'"
            )
        if not info.get("aof_enabled"):
            return ["append-only file is off: a restart of Redis loses jobs; set appendonly yes"]
        return []

    async def close(self) -> None:
        await self._redis.close()
