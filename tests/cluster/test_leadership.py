"""Two replicas of the operator: one acts."""

from __future__ import annotations

import os
import signal
import time

import pytest

from cluster.bench import Kube, Space, node, until
from llmqueue_operator.errors import StaleVersion
from llmqueue_operator.kube import Cluster as Writer
from llmqueue_operator.names import deployment_name

SCALING = {"minReplicas": 2, "maxReplicas": 6, "slotsPerWorker": 1, "stabilizationSeconds": 5}


async def test_one_acts_and_the_other_takes_over(kube: Kube) -> None:
    """A leader that ends in order hands over at once; one that is killed or frozen within 20 s.
    Workers see nothing of it, and what a frozen one wakes up to write is refused."""
    async with Space(kube, "leaders") as space:
        await space.operator(replicas=2)
        await space.queue("q", None, limits={"requestsPerMinute": 60}, scaling=SCALING)
        await space.served("q")

        async def both_ready() -> bool:
            return len([p for p in await space.operator_pods() if _is_ready(p)]) == 2

        await until("both replicas are ready, the follower too", both_ready, seconds=40)

        async def two_workers() -> bool:
            return len(await space.ready_pods("q")) == 2

        await until("two workers", two_workers, seconds=40)
        workers = {p["metadata"]["uid"] for p in await space.pods("q")}

        frozen = await space.leader()
        pid = await _pid(space, frozen)
        stale = await space.deployment("q")
        assert stale is not None
        os.kill(pid, signal.SIGSTOP)
        try:
            took = await _taken_over(space, frozen)
            print(f"frozen leader: taken over after {took:.1f} s")
            assert took <= 20
            await space.patch("q", {"scaling": {**SCALING, "minReplicas": 3}})

            async def three() -> bool:
                return await space.replicas("q") == 3

            await until("the new leader acts", three, seconds=10)
            changes = (await space.deployment("q") or {})["metadata"]["generation"]
        finally:
            os.kill(pid, signal.SIGCONT)
        with pytest.raises(StaleVersion):
            await Writer(kube.client, watched=space.name).scale(
                space.name,
                deployment_name("q"),
                1,
                version=stale["metadata"]["resourceVersion"],
            )

        async def follower_again() -> bool:
            log = await kube.run("-n", space.name, "logs", frozen)
            return '"event": "not-leading"' in log

        await until("the frozen one steps down", follower_again, seconds=10)
        assert (await space.deployment("q") or {})["metadata"]["generation"] == changes
        assert await space.leader() != frozen

        ended = await space.leader()
        started = time.monotonic()
        await kube.run("-n", space.name, "delete", "pod", ended, "--wait=false")
        await _taken_over(space, ended)
        took = time.monotonic() - started
        print(f"ended in order: handed over after {took:.1f} s")
        assert took <= 6
        assert workers <= {p["metadata"]["uid"] for p in await space.ready_pods("q")}
        assert await space.replicas("q") == 3


async def _taken_over(space: Space, before: str) -> float:
    started = time.monotonic()

    async def other() -> bool:
        return await space.leader() not in ("", before)

    await until("another one leads", other, seconds=40, every=0.1)
    return time.monotonic() - started


async def _pid(space: Space, pod: str) -> int:
    """Of its process, seen from this machine."""
    for container in node().containers():
        if (container.namespace, container.pod) == (space.name, pod):
            return container.pid
    raise AssertionError(f"{pod} does not run here")


def _is_ready(pod: dict) -> bool:  # type: ignore[type-arg]
    conditions = pod["status"].get("conditions") or []
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
