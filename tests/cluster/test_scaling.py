"""From `kubectl apply` to pods, to jobs done, to zero."""

from __future__ import annotations

import time

from cluster.bench import Kube, Space, until, watching
from llmqueue_operator.kube import DEPLOYMENTS
from llmqueue_operator.names import QUEUE_LABEL

SCALING = {
    "idleSeconds": 6,
    "stabilizationSeconds": 5,
    "expectedCallSeconds": 2,
    "slotsPerWorker": 5,
}


async def test_a_burst_is_worked_off_and_the_workers_go(kube: Kube) -> None:
    """S27, S29: 300 jobs at 600 a minute, from no worker to what the budget allows.

    Ten calls a second of 2 s each are 20 in flight: (20 + sqrt 20) / 5, rounded up, is 5.
    """
    async with Space(kube, "scaling") as space:
        provider = await space.provider(rpm=600, latency="2")
        await space.operator()
        await space.queue("first", provider, limits={"requestsPerMinute": 600}, scaling=SCALING)
        await space.served("first")
        await _idle_and_ready(space)
        async with watching(kube, DEPLOYMENTS.path(space.name), labels=QUEUE_LABEL) as watch:
            asked_at = time.monotonic()
            await space.enqueue("first", 300, latency=2)
            first = watch.first
            await _at_work(space)
            await space.finished("first", 300, seconds=90)
            took = time.monotonic() - asked_at
            await until("no worker is left", lambda: _gone(space), seconds=60)
        first_call = first(lambda d: d["spec"]["replicas"] > 0, after=asked_at) - asked_at
        asked = watch.values("spec", "replicas")
        print(f"took {took:.1f} s, first scale call after {first_call:.2f} s, replicas {asked}")
        assert first_call <= 1.0
        assert max(asked) == 5
        assert asked[0] == asked[-1] == 0
        peak = asked.index(5)
        assert asked[:peak] == sorted(asked[:peak])
        assert asked[peak:] == sorted(asked[peak:], reverse=True), "it flapped"
        stats = await provider.stats()
        assert stats["calls"] == stats["billed"]["jobs"] == 300, "calls were turned away"
        assert stats["billed_twice"] == 0
        assert stats["worst"]["requests"]["worst"] <= 600
        columns = await kube.run("-n", space.name, "get", "llmqueues")
        for title in ("READY", "DESIRED", "WORKERS", "READY JOBS", "IN FLIGHT", "BOUND BY", "ETA"):
            assert title in columns


async def _idle_and_ready(space: Space) -> None:
    async def look() -> bool:
        status = await space.status("first")
        return (
            status.get("desired") == 0
            and status.get("boundBy") == "Idle"
            and (await space.condition("first", "Ready")).get("status") == "True"
        )

    await until("idle, and ready all the same", look, seconds=20)


async def _at_work(space: Space) -> None:
    async def look() -> bool:
        status = await space.status("first")
        return (
            status["boundBy"] == "RequestsPerMinute"
            and status["desired"] == status["workers"] == 5
            and 0 < status["inFlight"] <= 25
            and status["etaSeconds"] > 0
            and 540 <= status["effectiveRequestsPerMinute"] <= 600
        )

    await until("the status tells of the work", look, seconds=45)


async def _gone(space: Space) -> bool:
    status = await space.status("first")
    return (
        not await space.pods("first")
        and status["desired"] == status["workers"] == status["inFlight"] == 0
        and status["jobs"]["succeeded"] == 300
        and (await space.condition("first", "Ready"))["status"] == "True"
    )
