"""The chart on a real cluster: install, use, upgrade under load, uninstall, have it back."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from cluster.bench import Kube, Space, until, watching
from cluster.bench.kube import CommandFailed, Object
from cluster.bench.release import Release
from cluster.bench.steady import NAME as STEADY
from cluster.bench.steady import Steady
from llmqueue_operator.kube import DEPLOYMENTS, LLMQUEUES
from llmqueue_operator.names import QUEUE_LABEL
from support.rendering import CHART

# The tests of this machine share one CRD, which kubectl has applied.
OWN_CRD = "--take-ownership"
NO_CRD = {"crds": {"install": False}}
CI = sorted((CHART / "ci").glob("*-values.yaml"))
SPEC = {
    "limits": {"requestsPerMinute": 600},
    "scaling": {"maxReplicas": 2, "slotsPerWorker": 4, "expectedCallSeconds": 1},
}


async def _works(space: Space, name: str = "q", jobs: int = 20) -> None:
    """The smallest LLMQueue, and jobs through it."""
    provider = await space.provider(f"provider-{name}")
    await space.queue(name, provider, **SPEC)
    await space.served(name)
    await space.enqueue(name, jobs)
    await space.finished(name, jobs, seconds=90)
    assert not await provider.paid_twice()


async def _crd(kube: Kube) -> Object:
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/llmqueues.llmqueue.dev"
    return await kube.raw("GET", path)


async def test_the_defaults_work_under_restricted_pod_security(kube: Kube) -> None:
    """With the trial Valkey, and it is said loudly that this is one."""
    async with Space(kube, "chart", valkey=False) as space:
        release = Release(space)
        said = await release.install({}, OWN_CRD)
        assert "JOBS ARE KEPT IN A TRIAL VALKEY" in said
        assert f"serves the LLMQueues of the namespace {space.name}." in said
        await space.open_store("llmqueue-trial-valkey")
        await _works(space)
        checked = await release.test()
        assert "ok    Redis connection default can be used" in checked
        assert "ok    an operator leads; replicas that answer: 2" in checked
        assert (await _crd(kube))["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


async def test_helm_test_says_what_is_wrong(kube: Kube) -> None:
    async with Space(kube, "chart", valkey=False) as space:
        release = Release(space)
        await release.install({**NO_CRD, "redis": {"url": "redis://nowhere:6379/0"}})
        with pytest.raises(CommandFailed) as refused:
            await release.test()
        assert "WRONG Redis connection default: Redis cannot be reached" in str(refused.value)


@pytest.mark.timeout(300)
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
            await until("all workers are new", lambda: _replaced(load, before), seconds=120)
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


async def _images(release: Release):  # type: ignore[no-untyped-def]
    for pod in [*await release.pods("operator"), *await release.space.pods(STEADY)]:
        yield pod["spec"]["containers"][0]["image"].rpartition("/")[2]


async def test_an_upgrade_that_changes_nothing_restarts_nothing(kube: Kube) -> None:
    async with Space(kube, "chart", valkey=False) as space:
        release = Release(space)
        await release.install(NO_CRD)
        before = await _generations(space)
        assert set(before.values()) == {1}
        await release.upgrade(NO_CRD)
        assert await _generations(space) == before


async def _generations(space: Space) -> dict[str, int]:
    found = await kube_objects(space, "deployments")
    return {each["metadata"]["name"]: each["metadata"]["generation"] for each in found}


async def kube_objects(space: Space, kinds: str) -> list[Object]:
    text = await space.kube.run("-n", space.name, "get", kinds, "-o", "json")
    return list(json.loads(text)["items"])


@pytest.mark.timeout(240)
async def test_uninstall_leaves_what_people_made_and_the_same_name_adopts_it(kube: Kube) -> None:
    async with Space(kube, "chart") as space:
        release = Release(space)
        values = {"redis": {"url": space.redis_url}, "trialValkey": {"enabled": False}}
        await release.install(values, OWN_CRD)
        await _works(space)
        uids = [each["metadata"]["uid"] for each in await _llmqueues(space)]
        crd = (await _crd(kube))["metadata"]["uid"]

        await release.uninstall()
        assert [each["metadata"]["uid"] for each in await _llmqueues(space)] == uids
        assert (await _crd(kube))["metadata"]["uid"] == crd
        left = await kube_objects(space, "serviceaccounts,roles,rolebindings,configmaps,services")
        ours = [e for e in left if "helm.sh/chart" in (e["metadata"].get("labels") or {})]
        assert ours == []
        assert await space.deployment("q") is not None, "workers went with the operator"
        await space.enqueue("q", 10)  # accepted while nobody plans

        await release.install(values)
        await space.finished("q", 30, seconds=90)
        assert [each["metadata"]["uid"] for each in await _llmqueues(space)] == uids
        assert (await _crd(kube))["metadata"]["uid"] == crd
        assert not await space.providers[0].paid_twice()


async def _llmqueues(space: Space) -> list[Object]:
    return [each async for each in space.kube.client.listed(LLMQUEUES, space.name)]


@pytest.mark.timeout(240)
async def test_releases_side_by_side(kube: Kube) -> None:
    """Of one name in two namespaces: each serves its own. A second one in the same namespace is
    refused by its operator, and the first works on."""
    async with Space(kube, "chart", valkey=False) as one, Space(kube, "chart") as other:
        first, second = Release(one), Release(other)
        values = {**NO_CRD, "redis": {"url": other.redis_url}}
        await asyncio.gather(first.install(NO_CRD), second.install(values))
        await one.open_store("llmqueue-trial-valkey")
        await asyncio.gather(_works(one), _works(other))

        third = Release(one, "third")
        with pytest.raises(CommandFailed):
            await third.helm("test", "third")
        await third.helm(
            *("install", "third", str(CHART), "--values=-"),
            stdin=json.dumps({**_values(one), "operator": _values(one)["operator"]}),
        )
        await until("the intruder says why it ends", lambda: _refused(third), seconds=60)
        await _works(one, "again")


def _values(space: Space) -> Object:
    from cluster.bench.release import images, merged

    return merged(images(), {**NO_CRD, "redis": {"url": space.redis_url}})


async def _refused(release: Release) -> bool:
    logs = ""
    for pod in await release.pods("operator"):
        try:
            name = pod["metadata"]["name"]
            logs += await release.space.kube.run("-n", release.space.name, "logs", name)
        except CommandFailed:  # not started yet
            continue
    return "this is installation 'third'. Remove one of them" in logs


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"trialValkey": {"enabled": False}}, "no Redis: give redis.url"),
        ({"operator": {"replicas": "many"}}, "at '/operator/replicas': got string, want integer"),
        ({"redis": {"url": "redis://:hush@r"}}, "name it in redis.existingSecret"),
    ],
    ids=["no redis", "schema", "password"],
)
async def test_wrong_values_leave_nothing_behind(kube: Kube, values: Object, said: str) -> None:
    async with Space(kube, "chart", valkey=False) as space:
        release = Release(space)
        with pytest.raises(CommandFailed, match=said):
            await release.upgrade({**NO_CRD, **values}, "--install")
        assert json.loads(await release.helm("list", "--all", "-o", "json")) == []


@pytest.mark.parametrize(
    "file", [f for f in CI if "cluster-scope" not in f.name], ids=lambda f: f.stem
)
async def test_each_example_of_values_installs(kube: Kube, file: Path) -> None:
    """In a namespace that has what the files name: Secrets, and a Redis called valkey."""
    if file.name.startswith("monitoring"):
        try:
            await kube.run("get", "crd", "podmonitors.monitoring.coreos.com")
        except CommandFailed:
            pytest.skip("LEFT OUT: needs the resources of the Prometheus operator")
    async with Space(kube, "chart") as space:
        await _secrets(space)
        release = Release(space, files=(file,))
        await release.install(NO_CRD)
        assert "WRONG" not in await release.test()


async def _secrets(space: Space) -> None:
    for name in ("valkey", "valkey-batch"):
        await space.kube.apply(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": name, "namespace": space.name},
                "stringData": {"url": space.redis_url},
            }
        )


@pytest.mark.serial
async def test_one_release_for_the_whole_cluster(kube: Kube) -> None:
    """Serves another namespace; alone on the cluster, since it would serve all tests' too."""
    await until("no other test's LLMQueue is left", lambda: _nobody_else(kube), seconds=90)
    async with Space(kube, "chart", valkey=False) as home, Space(kube, "chart") as away:
        file = CHART / "ci" / "cluster-scope-values.yaml"
        release = Release(home, files=(file,))
        said = await release.install({**NO_CRD, "redis": {"url": away.redis_url}})
        assert "serves the LLMQueues of all namespaces." in said
        await _works(away)
        assert "WRONG" not in await release.test()
        await release.uninstall()


async def _nobody_else(kube: Kube) -> bool:
    return not [each async for each in kube.client.listed(LLMQUEUES, None)]
