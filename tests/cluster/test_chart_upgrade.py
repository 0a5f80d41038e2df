"""Upgrades of a release on a real cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from cluster.bench import Kube, Space, until, watching
from cluster.bench.kube import CommandFailed
from cluster.bench.release import NO_CRD, Release
from cluster.bench.steady import NAME as STEADY
from cluster.bench.steady import Steady
from llmqueue_operator.kube import DEPLOYMENTS
from llmqueue_operator.names import QUEUE_LABEL


@pytest.mark.timeout(420)
async def test_an_upgrade_under_load_loses_nothing(kube: Kube) -> None:
    """New images of operator and workers and new limits at once, while calls run: the replicas stay
    as they are, workers are replaced one by one, Valkey is not touched."""
    async with Space(kube, "chart", valkey=False) as space:
        release = Release(space)
        await release.install(NO_CRD)
        await space.open_store("llmqueue-trial-valkey")
        load = Steady(space, workers=3, slots=2, call_seconds=3)
        await load.start(jobs=200)
        before = {pod["metadata"]["uid"] for pod in await space.pods(STEADY)}
        (valkey,) = await release.pods("trial-valkey")
        async with watching(kube, DEPLOYMENTS.path(space.name), labels=QUEUE_LABEL) as watch:
            new = {"image": {"tag": "next"}}
            limits = {"limits": {"requestsPerMinute": 50_000}}
            _, said = await asyncio.gather(
                space.patch(STEADY, limits),
                release.upgrade({**NO_CRD, "operator": new, "worker": new}),
            )
            assert "REVISION: 2" in said
            await until("all workers are new", lambda: _replaced(load, before), seconds=180)
        assert watch.values("spec", "replicas") == [load.workers]
        assert {image async for image in _images(release)} == {"operator:next", "worker:next"}
        assert [p["metadata"]["uid"] for p in await release.pods("trial-valkey")] == [
            valkey["metadata"]["uid"]
        ]
        effective = (await space.status(STEADY))["observedGeneration"]
        assert effective == (await space.resource(STEADY))["metadata"]["generation"]
        await load.all_right()


async def _replaced(load: Steady, before: set[str]) -> bool:
    pods = await load.space.pods(STEADY)
    return await load.all_ready() and not before & {pod["metadata"]["uid"] for pod in pods}


async def _images(release: Release) -> AsyncIterator[str]:
    for pod in [*await release.pods("operator"), *await release.space.pods(STEADY)]:
        yield pod["spec"]["containers"][0]["image"].rpartition("/")[2]


async def test_an_upgrade_that_changes_nothing_restarts_nothing(kube: Kube) -> None:
    async with Space(kube, "chart", valkey=False) as space:
        release = Release(space)
        await release.install(NO_CRD)
        before = await _generations(release)
        assert set(before.values()) == {1}
        await release.upgrade(NO_CRD)
        assert await _generations(release) == before


async def test_an_upgrade_never_puts_a_trial_valkey_in_place_of_a_redis(kube: Kube) -> None:
    """`helm upgrade --set a=b` forgets that there is one, and how its objects are called."""
    async with Space(kube, "chart") as space:
        release = Release(space)
        values = {"fullnameOverride": "llm", "redis": {"url": space.redis_url}}
        await release.install({**NO_CRD, **values})
        with pytest.raises(CommandFailed, match="this release has a Redis of its own"):
            await release.upgrade(NO_CRD)
        await release.upgrade(NO_CRD, "--reset-then-reuse-values")
        assert not await release.pods("trial-valkey")


async def test_an_upgrade_never_leaves_the_trial_valkeys_volume(kube: Kube) -> None:
    async with Space(kube, "chart", valkey=False) as space:
        release = Release(space)
        await release.install(NO_CRD)
        (service,) = [
            each
            for each in await release.objects("services")
            if each["metadata"]["name"] == "llmqueue-trial-valkey"
        ]
        volume = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "kept", "labels": service["metadata"]["labels"]},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }
        await kube.apply(volume, namespace=space.name)
        with pytest.raises(CommandFailed, match="keeps its jobs in a volume"):
            await release.upgrade(NO_CRD)


async def _generations(release: Release) -> dict[str, int]:
    found = await release.objects("deployments")
    return {each["metadata"]["name"]: each["metadata"]["generation"] for each in found}
