"""The chart on a real cluster: install, use, uninstall, have it back, side by side."""

from __future__ import annotations

import asyncio
import json

import pytest

from cluster.bench import Kube, Space, until
from cluster.bench.kube import CommandFailed, Object
from cluster.bench.release import NO_CRD, OWN_CRD, Release, images, merged, works
from llmqueue_operator.kube import LLMQUEUES
from support.rendering import CHART


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
        await works(space)
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


@pytest.mark.timeout(240)
async def test_uninstall_leaves_what_people_made_and_the_same_name_adopts_it(kube: Kube) -> None:
    async with Space(kube, "chart") as space:
        release = Release(space)
        values = {"redis": {"url": space.redis_url}, "trialValkey": {"enabled": False}}
        await release.install(values, OWN_CRD)
        await works(space)
        uids = [each["metadata"]["uid"] for each in await _llmqueues(space)]
        crd = (await _crd(kube))["metadata"]["uid"]

        await release.uninstall()
        assert [each["metadata"]["uid"] for each in await _llmqueues(space)] == uids
        assert (await _crd(kube))["metadata"]["uid"] == crd
        left = await release.objects("serviceaccounts,roles,rolebindings,configmaps,services")
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


async def test_a_release_takes_over_what_kustomize_has_made(kube: Kube) -> None:
    """As docs/how-to/upgrade.md says it; the workers stay."""
    async with Space(kube, "chart") as space:
        await space.operator()
        await works(space)
        await space.patch("q", {"scaling": {"minReplicas": 1}})
        await until("a worker stays", lambda: space.ready_pods("q"), seconds=60)
        workers = {pod["metadata"]["uid"] for pod in await space.ready_pods("q")}
        await kube.run("-n", space.name, "delete", "deployment", "llmqueue-operator")
        redis = {"redis": {"existingSecret": "llmqueue-connection-default"}}
        await Release(space).install({**redis, "trialValkey": {"enabled": False}}, OWN_CRD)
        await space.enqueue("q", 10)
        await space.finished("q", 30, seconds=60)
        assert workers & {pod["metadata"]["uid"] for pod in await space.pods("q")}


@pytest.mark.timeout(240)
async def test_releases_side_by_side(kube: Kube) -> None:
    """Of one name in two namespaces: each serves its own. A second one in the same namespace is
    refused by its operator, and the first works on."""
    async with Space(kube, "chart", valkey=False) as one, Space(kube, "chart") as other:
        first, second = Release(one), Release(other)
        values = {**NO_CRD, "redis": {"url": other.redis_url}}
        await asyncio.gather(first.install(NO_CRD), second.install(values))
        await one.open_store("llmqueue-trial-valkey")
        await asyncio.gather(works(one), works(other))

        third = Release(one, "third")
        intruder = merged(images(), {**NO_CRD, "redis": {"url": one.redis_url}})
        await third.helm(
            *("install", "third", str(CHART), "--values=-"), stdin=json.dumps(intruder)
        )
        await until("the intruder says why it ends", lambda: _refused(third), seconds=60)
        await works(one, "again")


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
        assert json.loads(await release.helm("list", "-o", "json")) == []


@pytest.mark.serial
async def test_one_release_for_the_whole_cluster(kube: Kube) -> None:
    """Serves another namespace; alone on the cluster, since it would serve all tests' too."""
    await until("no other test's LLMQueue is left", lambda: _nobody_else(kube), seconds=90)
    async with Space(kube, "chart", valkey=False) as home, Space(kube, "chart") as away:
        file = CHART / "ci" / "cluster-scope-values.yaml"
        release = Release(home, files=(file,))
        said = await release.install({**NO_CRD, "redis": {"url": away.redis_url}})
        assert "serves the LLMQueues of all namespaces." in said
        await works(away)
        assert "WRONG" not in await release.test()
        await release.uninstall()


async def _nobody_else(kube: Kube) -> bool:
    return not [each async for each in kube.client.listed(LLMQUEUES, None)]
