"""An LLMQueue whose workers are all busy, and must stay as they are."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from cluster.bench.kube import Object
from cluster.bench.space import Space
from cluster.bench.watch import Watch, until, watching
from llmqueue_operator.kube import DEPLOYMENTS
from llmqueue_operator.names import QUEUE_LABEL

NAME = "steady"
_AFTER_SECONDS = 3.0
"""Long enough for what a change would set off."""
_numbers = itertools.count(1)


class Steady:
    """`workers` pods of `slots` slots each; every call takes `call_seconds`."""

    def __init__(self, space: Space, *, workers: int, slots: int, call_seconds: int) -> None:
        self.space = space
        self.workers, self.slots, self.call_seconds = workers, slots, call_seconds
        self._jobs = 0

    async def start(self, *, jobs: int) -> None:
        """Returns when all workers are ready and busy."""
        space, seconds = self.space, self.call_seconds
        provider = await space.provider()
        await space.queue(
            NAME,
            provider,
            limits={"requestsPerMinute": 60_000},
            timeouts={"requestSeconds": 60 + seconds, "attemptSeconds": 60 + seconds},
            gracePeriods={"drainSeconds": 80 + seconds},
            scaling={
                "maxReplicas": self.workers,
                "slotsPerWorker": self.slots,
                "stabilizationSeconds": 60,
                "expectedCallSeconds": seconds,
            },
        )
        await space.served(NAME)
        await self.more(jobs)
        await until("all workers are ready", self.all_ready, seconds=180)

    async def more(self, jobs: int) -> None:
        """Further jobs, so that nobody runs out of work."""
        await self.space.enqueue(NAME, jobs, latency=self.call_seconds)
        self._jobs += jobs

    async def all_ready(self) -> bool:
        return len(await self.space.ready_pods(NAME)) == self.workers

    @asynccontextmanager
    async def unmoved(self) -> AsyncIterator[Watch]:
        """Neither the replicas nor any worker change in the block, nor for some seconds after."""
        space = self.space
        before = await self.restarts()
        path = DEPLOYMENTS.path(space.name)
        async with watching(space.kube, path, labels=QUEUE_LABEL) as watch:
            yield watch
            await asyncio.sleep(_AFTER_SECONDS)
        assert watch.values("spec", "replicas") == [self.workers]
        await self.same_workers(before)

    async def same_workers(self, before: dict[str, int]) -> None:
        """Those of before, and none was restarted."""
        assert await self.restarts() == before

    async def restarts(self) -> dict[str, int]:
        """Worker → how often the kubelet restarted it."""
        found = {p["metadata"]["uid"]: _restarts(p) for p in await self.space.pods(NAME)}
        assert len(found) == self.workers
        return found

    async def acts(self, *, seconds: float) -> float:
        """How long until the operator has taken in a change of the resource and said so."""
        space, started = self.space, time.monotonic()
        await space.patch(NAME, {"retry": {"jitterPercent": next(_numbers) % 100}})
        generation = (await space.resource(NAME))["metadata"]["generation"]

        async def observed() -> bool:
            return (await space.status(NAME)).get("observedGeneration") == generation

        await until("the operator has seen the change", observed, seconds=seconds, every=0.1)
        return time.monotonic() - started

    async def all_right(self) -> None:
        """At the end: no job lost, none in review, none dead, none billed twice."""
        space = self.space
        await space.patch(NAME, {"queue": {"suspend": True}})

        async def ended() -> bool:
            counts = await space.counts(NAME)
            return counts["leased"] == counts["sent"] == 0

        await until("running calls have ended", ended, seconds=self.call_seconds + 30)
        counts = await space.counts(NAME)
        assert counts["review"] == counts["dead"] == 0
        assert counts["succeeded"] > 0
        assert counts["succeeded"] + counts["ready"] + counts["delayed"] == self._jobs
        assert not await space.providers[0].paid_twice()

    async def store_is(self, status: str, reason: str) -> bool:
        """What the condition StoreAvailable says."""
        found = await self.space.condition(NAME, "StoreAvailable")
        return (found.get("status"), found.get("reason")) == (status, reason)


def _restarts(pod: Object) -> int:
    return int(sum(c["restartCount"] for c in pod["status"].get("containerStatuses", ())))


def is_valkey(container: Any, space: Space) -> bool:
    """Whether a container of the node is the space's store."""
    return (container.namespace, container.name) == (space.name, "valkey")
