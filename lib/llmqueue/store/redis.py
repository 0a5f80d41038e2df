"""The store on Redis or Valkey."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llmqueue.errors import StoreMisconfigured
from llmqueue.store import durability
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
        """Verify what jobs depend on, at every primary; returns warnings.

        Raises StoreMisconfigured where a server is too old, may evict jobs, or cannot keep what a
        Strict queue promises.
        """
        with translated():
            infos = await self._redis.topology.ask_primaries("INFO")
            settings = await self._redis.topology.ask_primaries("CONFIG GET", "maxmemory-policy")
            fsyncs = await self._redis.topology.ask_primaries("CONFIG GET", "appendfsync")
        for info, found in zip(infos, settings, strict=True):
            _verify_version(info)
            _verify_policy(found.get("maxmemory-policy", "noeviction"))
        warnings: list[str] = []
        if not all(info.get("aof_enabled") for info in infos):
            warnings.append(
                "append-only file is off: a restart of Redis loses jobs; set appendonly yes"
            )
        if await self._redis.any_strict():
            for info in infos:
                if why := durability.obstacle(info):
                    raise StoreMisconfigured(f"a queue's durability is Strict, but of Redis {why}")
            slow = {durability.slowness(found.get("appendfsync", "always")) for found in fsyncs}
            warnings += [text for text in slow if text]
        return warnings

    async def close(self) -> None:
        await self._redis.close()


def _verify_version(info: Mapping[str, Any]) -> None:
    kind = "valkey" if "valkey_version" in info else "redis"
    version = str(info.get(f"{kind}_version", "0.0"))
    if tuple(int(part) for part in version.split(".")[:2]) < _OLDEST[kind]:
        oldest = ".".join(map(str, _OLDEST[kind]))
        raise StoreMisconfigured(f"{kind} {version} is too old: {oldest} or newer is needed")


def _verify_policy(policy: str) -> None:
    if policy != "noeviction":
        raise StoreMisconfigured(
            f"maxmemory-policy is {policy!r}: Redis could drop jobs; set it to 'noeviction'"
        )
