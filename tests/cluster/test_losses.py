"""Pods and containers that end without warning: what they had not sent runs again soon."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from cluster.bench import Kube, Space, node, objects, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

AGAIN_SECONDS = 15.0
_SILENT = (
    "import socket, time; s = socket.create_server(('', 8443), backlog=64); kept = []\n"
    "while True: kept.append(s.accept())"
)
"""Takes connections and says nothing: a TLS client waits, and has sent nothing of its request."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def space(cluster_files) -> AsyncIterator[Space]:  # type: ignore[no-untyped-def]
    async with Kube.connected(*cluster_files) as kube, Space(kube, "losses") as made:
        await made.provider()
        await kube.apply(
            objects.pod("silent", ["-c", _SILENT], 8443, entry=["python"]), namespace=made.name
        )
        await made.operator()
        await kube.run("-n", made.name, "wait", "pod/silent", "--for=condition=Ready")
        yield made


async def _silent_address(space: Space) -> str:
    found = await space.kube.raw("GET", f"/api/v1/namespaces/{space.name}/pods/silent")
    return str(found["status"]["podIP"])


async def _holder(space: Space, name: str) -> str:
    """The worker process that holds the job; empty while none does."""
    snapshot = await space.store.snapshot(f"{space.name}/{name}", horizon_seconds=0)
    return next((w.worker for w in snapshot.workers if w.in_flight), "")


@pytest.mark.parametrize("end", ["pod", "container"])
async def test_unsent_jobs_run_again_soon(space: Space, end: str) -> None:
    """S9: a job whose connection was still being made when its worker was killed."""
    name = f"unsent-{end}"
    await space.queue(
        name,
        None,
        provider={
            "type": "openai-compatible",
            "baseURL": f"https://{await _silent_address(space)}:8443/v1",
        },
        limits={"requestsPerMinute": 600},
        timeouts={"connectSeconds": 60, "requestSeconds": 60, "attemptSeconds": 120},
        gracePeriods={"drainSeconds": 120},
        scaling={"slotsPerWorker": 2, "minReplicas": 1, "maxReplicas": 1},
    )
    await space.served(name)
    await space.enqueue(name, 1)

    async def held() -> bool:
        return (await space.counts(name))["leased"] == 1

    await until("a job waits for its connection", held, seconds=40)
    holder = await _holder(space, name)
    (pod,) = await space.pods(name)
    killed_at = time.monotonic()
    if end == "pod":
        await space.kube.run(
            *("-n", space.name, "delete", "pod", pod["metadata"]["name"]),
            *("--force", "--grace-period=0"),
        )
    node().kill_container(pod["metadata"]["uid"], "worker")

    async def again() -> bool:
        return await _holder(space, name) not in ("", holder)

    await until("it was handed out again", again, seconds=AGAIN_SECONDS + 5, every=0.1)
    took = time.monotonic() - killed_at
    print(f"{end}: handed out again after {took:.1f} s")
    assert took <= AGAIN_SECONDS
    await space.kube.run("-n", space.name, "delete", "llmqueue", name)


async def test_a_killed_call_is_not_silently_paid_twice(space: Space) -> None:
    """S9: what had been sent is set aside for review or repeated once, as the policy says, and
    whatever was billed twice is told."""
    provider = space.providers[0]
    await space.queue(
        "sent",
        provider,
        limits={"requestsPerMinute": 600},
        retry={"unknownOutcome": {"policy": "Review", "maxAutoRetries": 0}},
        scaling={"slotsPerWorker": 4, "minReplicas": 1, "maxReplicas": 1},
    )
    await space.served("sent")
    jobs = await space.enqueue("sent", 4, latency=8)

    async def started() -> bool:
        return (await space.counts("sent"))["sent"] == 4

    await until("four calls run", started, seconds=40)
    (pod,) = await space.pods("sent")
    node().kill_container(pod["metadata"]["uid"], "worker")

    async def aside() -> bool:
        return (await space.counts("sent"))["review"] == 4

    await until("all four wait for a decision", aside, seconds=30)
    billed = await provider.billed()
    assert all(billed.get(job, 0) <= 1 for job in jobs)
    await space.kube.run("-n", space.name, "delete", "llmqueue", "sent")
