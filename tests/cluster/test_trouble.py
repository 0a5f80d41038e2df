"""What goes wrong around the workers: replicas change only as documented, workers are not touched.

Short forms; the real durations and numbers are in test_trouble_soak.py.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from cluster.bench import Kube, Space, node, until, watching
from cluster.bench.steady import NAME, Steady, is_valkey
from llmqueue_operator.kube import DEPLOYMENTS
from llmqueue_operator.names import QUEUE_LABEL, deployment_name

# Restarts the API server, which other tests use.
pytestmark = [pytest.mark.serial, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def steady(cluster_files) -> AsyncIterator[Steady]:  # type: ignore[no-untyped-def]
    """Busy workers for as long as this module runs."""
    async with Kube.connected(*cluster_files) as kube, Space(kube, "trouble") as space:
        await space.operator()
        made = Steady(space, workers=4, slots=2, call_seconds=20)
        await made.start(jobs=200)
        yield made
        await made.all_right()


async def test_an_operator_that_is_killed(steady: Steady) -> None:
    """S34: kill -9 of its container; its successor goes on where it was."""
    async with steady.unmoved():
        for _ in range(2):
            (pod,) = await steady.space.operator_pods()
            node().kill_container(pod["metadata"]["uid"], "operator")
            took = await steady.acts(seconds=40)
            print(f"operator killed: acts again after {took:.1f} s")
            assert took <= 20


async def test_an_operator_that_is_rolled(steady: Steady) -> None:
    """S23, S50: both manifests applied five times, and a rolling restart."""
    space = steady.space
    async with steady.unmoved():
        for _ in range(5):
            await space.operator()
            await space.apply_again(NAME)
        await space.kube.run("-n", space.name, "rollout", "restart", "deploy/llmqueue-operator")
        await space.kube.run(
            *("-n", space.name, "rollout", "status", "deploy/llmqueue-operator"), "--timeout=60s"
        )
        took = await steady.acts(seconds=40)
        print(f"operator rolled: acts after {took:.1f} s")
        assert took <= 20


async def test_an_api_server_that_restarts(steady: Steady) -> None:
    """S50: away for longer than a Lease is fresh, and back; the operator waits and goes on."""
    space, cluster = steady.space, node()
    before = await steady.restarts()
    # Killed: one that ends in order takes its address out of the Service, and kube-proxy is late
    # to put it back.
    cluster.stop_apiserver(grace_seconds=0)
    await asyncio.sleep(13)
    cluster.start_apiserver()
    took = await steady.acts(seconds=60)
    print(f"API server back: acts after {took:.1f} s")
    assert await space.replicas(NAME) == steady.workers
    await steady.same_workers(before)


async def test_a_redis_that_is_silent(steady: Steady) -> None:
    """S13, S14, S16: a black hole for a while: held, told with its reason, over in a tick."""
    space = steady.space
    (valkey,) = [c for c in node().containers() if is_valkey(c, space)]
    async with steady.unmoved():
        os.kill(valkey.pid, signal.SIGSTOP)
        try:
            await until(
                "it is told", lambda: steady.store_is("False", "StoreUnavailable"), seconds=20
            )
            status = await space.status(NAME)
            assert status["desired"] == status["replicas"] == steady.workers
            assert status["boundBy"] == "Held"
            await asyncio.sleep(5)
        finally:
            os.kill(valkey.pid, signal.SIGCONT)
        started = time.monotonic()
        await until(
            "all is well", lambda: steady.store_is("True", "AsExpected"), seconds=20, every=0.1
        )
        took = time.monotonic() - started
        print(f"Redis back: told after {took:.1f} s")
        assert took <= 3


async def test_a_redis_that_restarts(steady: Steady) -> None:
    """S17: kill -9; its data is on disk, and the workers' calls are settled when it is back."""
    (valkey,) = [c for c in node().containers() if is_valkey(c, steady.space)]
    async with steady.unmoved():
        node().kill_container(valkey.pod_uid, valkey.name)
        await asyncio.sleep(2)
        await until("all is well", lambda: steady.store_is("True", "AsExpected"), seconds=40)
        await steady.acts(seconds=20)


async def test_someone_scales_by_hand(steady: Steady) -> None:
    """S22: reverted once with an event, then told and left alone; no loop."""
    space, name = steady.space, deployment_name(NAME)
    for _ in range(2):
        await space.kube.run("-n", space.name, "scale", f"deployment/{name}", "--replicas=3")
        await asyncio.sleep(4)
    assert await space.replicas(NAME) == 3
    assert (await space.events(NAME)).count("ReplicasReverted") == 1
    conflict = await space.condition(NAME, "ReplicaConflict")
    assert conflict["status"] == "True"
    assert "kubectl" in conflict["message"]
    async with watching(space.kube, DEPLOYMENTS.path(space.name), labels=QUEUE_LABEL) as watch:
        await asyncio.sleep(8)
    assert 4 not in watch.values("spec", "replicas"), "it fought back"


async def test_an_autoscaler_scales_too(steady: Steady) -> None:
    """S21: an HPA on our Deployment takes the replicas again after they were set back."""
    space = steady.space
    await space.queue(
        "contested",
        None,
        limits={"requestsPerMinute": 60},
        scaling={"minReplicas": 1, "maxReplicas": 5},
    )
    await space.served("contested")
    await space.kube.run(
        *("-n", space.name, "autoscale", f"deployment/{deployment_name('contested')}"),
        *("--min=2", "--max=3", "--cpu=50%"),
    )

    async def told() -> bool:
        found = await space.condition("contested", "ReplicaConflict")
        return found.get("status") == "True"

    await until("the conflict is told", told, seconds=90)
    assert (await space.events("contested")).count("ReplicasReverted") == 1
    path = DEPLOYMENTS.path(space.name)
    async with watching(space.kube, path, labels=f"{QUEUE_LABEL}=contested") as watch:
        await asyncio.sleep(8)
    assert watch.values("spec", "replicas") == [2], "it fought back"
    await space.kube.run("-n", space.name, "delete", "llmqueue", "contested")
