"""How the operator fares with many LLMQueues; on the tests' cluster."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any

import httpx2

from benchmarks.processes import cpu_seconds, rss_bytes
from cluster.bench import Kube, Space, node, until
from llmqueue_operator.kube import DEPLOYMENTS, EVENTS, LLMQUEUES

SERVED_SECONDS = 600.0
"""How long it may take until all are served after they were created."""
RESTARTED_SECONDS = 180.0
QUIET_SECONDS = 30.0
"""After the last change, before the steady time begins: numbers are written late."""
_AT_ONCE = 20
_LEAD_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one number of LLMQueues, all idle."""

    queues: int
    served_seconds: float
    """From the first one's creation to the last one's status."""
    restart_seconds: float
    """From the end of the operator's pod to the last one planned by its successor."""
    cpu_percent: float
    """Of one core, over `steady_seconds` in which nothing changes."""
    memory_mib: float
    steady_seconds: float
    written: int
    """LLMQueues and Deployments whose version changed in that time, and new Events."""


async def measure(kube: Kube, queues: int, *, steady_seconds: float) -> Figures:
    """In a namespace of its own."""
    async with Space(kube, f"many-{queues}") as space:
        await space.operator()
        served = await _create(space, queues)
        await asyncio.sleep(QUIET_SECONDS)
        restart = await _restart(space, queues)
        await asyncio.sleep(QUIET_SECONDS)
        pid = await _pid(space)
        before, cpu, started = await _versions(space), cpu_seconds(pid), time.monotonic()
        await asyncio.sleep(steady_seconds)
        used, lasted = cpu_seconds(pid) - cpu, time.monotonic() - started
        after = await _versions(space)
        return Figures(
            queues=queues,
            served_seconds=round(served, 1),
            restart_seconds=round(restart, 1),
            cpu_percent=round(100 * used / lasted, 1),
            memory_mib=round(rss_bytes(pid) / 2**20),
            steady_seconds=steady_seconds,
            written=len(before.items() ^ after.items()),
        )


async def _create(space: Space, queues: int) -> float:
    """Create them, and wait until each has its Deployment and its status."""
    started, room = time.monotonic(), asyncio.Semaphore(_AT_ONCE)

    async def create(number: int) -> None:
        async with room:
            await space.kube.client.create(LLMQUEUES, space.name, _document(number))

    await asyncio.gather(*map(create, range(queues)))

    async def all_served() -> bool:
        found = [q async for q in space.kube.client.listed(LLMQUEUES, space.name)]
        return sum("desired" in (q.get("status") or {}) for q in found) == queues

    await until(f"{queues} are served", all_served, seconds=SERVED_SECONDS, every=1)
    return time.monotonic() - started


def _document(number: int) -> dict[str, Any]:
    return {
        "apiVersion": LLMQUEUES.api_version,
        "kind": LLMQUEUES.kind,
        "metadata": {"name": f"q{number}"},
        "spec": {"provider": {"type": "openai"}, "limits": {"requestsPerMinute": 60}},
    }


async def _restart(space: Space, queues: int) -> float:
    """End the operator's pod in order; until its successor has planned every LLMQueue."""
    (old,) = await space.operator_pods()
    started = time.monotonic()
    await space.kube.run("-n", space.name, "delete", "pod", old["metadata"]["name"], "--wait=false")

    async def all_planned() -> bool:
        for pod in await space.operator_pods():
            address = pod["status"].get("podIP")
            if address and pod["metadata"]["uid"] != old["metadata"]["uid"]:
                return await _exported(address) == queues
        return False

    await until("all are planned again", all_planned, seconds=RESTARTED_SECONDS, every=0.5)
    return time.monotonic() - started


async def _exported(address: str) -> int:
    """LLMQueues that an operator's metrics tell of."""
    try:
        async with httpx2.AsyncClient(trust_env=False, timeout=5) as client:
            answer = await client.get(f"http://{address}:8080/metrics")
    except httpx2.HTTPError:
        return 0
    return answer.text.count("\nllmqueue_workers_desired{")


async def _pid(space: Space) -> int:
    """Of the operator's process, seen from this machine."""
    leader = await until("one leads", space.leader, seconds=_LEAD_SECONDS)
    for container in node().containers():
        if (container.namespace, container.pod) == (space.name, leader):
            return container.pid
    raise AssertionError(f"{leader} does not run here")


async def _versions(space: Space) -> dict[str, str]:
    """uid → version of all that the operator might write, its Lease aside."""
    return {
        raw["metadata"]["uid"]: raw["metadata"]["resourceVersion"]
        for kind in (LLMQUEUES, DEPLOYMENTS, EVENTS)
        async for raw in space.kube.client.listed(kind, space.name)
    }
