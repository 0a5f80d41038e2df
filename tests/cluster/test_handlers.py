"""The example application, in its own image, as pods."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from cluster.bench import Kube, Space, until
from cluster.bench.given import IMAGES
from llmqueue.client import Client, HandlerCall

PARTS = 3
JOBS = 6
_PART_CHARACTERS = 2000
"""As the example splits a document."""


def document(number: int) -> str:
    """So long that the example makes a call for each of PARTS parts, and one for the whole."""
    return "".join(
        f"{number}.{part} ".ljust(_PART_CHARACTERS - 1, "x") + "\n" for part in range(PARTS)
    )


@pytest.mark.timeout(300)
async def test_the_example_application_loses_its_pods(kube: Kube) -> None:
    """S9, S52: a pod killed and the others replaced in the middle of jobs of several calls: every
    job ends with its result, and no call is paid for twice but one whose pod was killed in it."""
    async with Space(kube, "handlers") as space:
        provider = await space.provider(latency="1.5")
        await space.operator()
        await space.queue(
            "documents",
            provider,
            limits={"requestsPerMinute": 600},
            worker={"image": f"{IMAGES}/handlers:dev", "handlers": "team.jobs"},
            scaling={"minReplicas": 2, "maxReplicas": 2, "slotsPerWorker": 3},
            timeouts={"requestSeconds": 20, "attemptSeconds": 60},
            gracePeriods={"drainSeconds": 60},
        )
        await space.served("documents")

        async def both_ready() -> bool:
            return len(await space.ready_pods("documents")) == 2

        await until("both workers are ready", both_ready, seconds=90)
        calls = [HandlerCall("summarise", {"document": document(n)}) for n in range(JOBS)]
        async with Client(space.store) as client:
            handles = await client.enqueue_many(f"{space.name}/documents", calls)
            await trouble(kube, space)
            results = await asyncio.gather(*(each.result(timeout_seconds=150) for each in handles))
        assert [result["parts"] for result in results] == [PARTS] * JOBS
        assert all(result["summary"] for result in results)
        await provider_agrees(space, JOBS * (PARTS + 1))


async def trouble(kube: Kube, space: Space) -> None:
    """In the middle of the jobs: one pod is killed, then all are replaced."""
    provider = space.providers[0]

    async def under_way() -> bool:
        return bool((await provider.stats())["calls"] >= JOBS)

    await until("the first calls are made", under_way, seconds=30)
    victim = (await space.ready_pods("documents"))[0]["metadata"]["name"]
    await kube.run("-n", space.name, "delete", "pod", victim, "--force", "--grace-period=0")
    await space.patch("documents", {"worker": {"env": [{"name": "ROUND", "value": "2"}]}})


async def provider_agrees(space: Space, calls: int) -> None:
    """Each call of each job was billed once; what was billed again is marked in its job."""
    provider = space.providers[0]
    billed = Counter(row["key"] for row in await provider.calls() if row["billed"])
    again = {key: times for key, times in billed.items() if times > 1}
    views = [await space.store.job(job) for job in {key.partition("/")[0] for key in again}]
    print(f"{len(billed)} calls were billed, again: {len(again)}")
    assert len(billed) == calls
    assert all(view.possible_duplicate for view in views), "paid twice in silence"
