"""The same troubles at their real size: thirty busy workers, minutes of outage."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from cluster.bench import Kube, Space, node, until
from cluster.bench.kube import Object
from cluster.bench.steady import NAME, Steady, is_valkey

pytestmark = [
    pytest.mark.soak,
    pytest.mark.serial,
    pytest.mark.timeout(1800),
    pytest.mark.asyncio(loop_scope="module"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def steady(cluster_files) -> AsyncIterator[Steady]:  # type: ignore[no-untyped-def]
    async with Kube.connected(*cluster_files) as kube, Space(kube, "soak") as space:
        await space.operator(replicas=2)
        made = Steady(space, workers=30, slots=1, call_seconds=30)
        await made.start(jobs=3000)
        yield made
        await made.all_right()


async def test_twenty_killed_operators(steady: Steady) -> None:
    """S34: whoever leads is killed and deleted, twenty times; ≤ 20 s each until another acts."""
    worst = 0.0
    async with steady.unmoved():
        for _ in range(20):
            started = await _kill_the_leader(steady.space)
            await steady.acts(seconds=60)
            worst = max(worst, time.monotonic() - started)
            await asyncio.sleep(random.uniform(0, 3))
    print(f"twenty operators killed: the longest until one acted {worst:.1f} s")
    assert worst <= 20


async def _kill_the_leader(space: Space) -> float:
    """Returns when it was killed, once another one leads."""

    async def living_leader() -> Object | None:
        name = await space.leader()
        pods = await space.operator_pods()
        return next((p for p in pods if p["metadata"]["name"] == name), None)

    pod = await until("a replica that is there leads", living_leader, seconds=60)
    assert pod is not None
    name, started = pod["metadata"]["name"], time.monotonic()
    node().kill_container(pod["metadata"]["uid"], "operator")
    await space.kube.run(*("-n", space.name, "delete", "pod", name, "--force", "--grace-period=0"))

    async def another() -> bool:
        return await space.leader() not in ("", name)

    await until("another one leads", another, seconds=60, every=0.1)
    return started


async def test_api_servers_that_restart(steady: Steady) -> None:
    space, cluster = steady.space, node()
    before = await steady.restarts()
    for pause in (1, 20, 60):
        # Killed: one that ends in order takes its address out of the Service, and kube-proxy is late
        # to put it back.
        cluster.stop_apiserver(grace_seconds=0)
        await asyncio.sleep(pause)
        cluster.start_apiserver()
        took = await steady.acts(seconds=90)
        print(f"API server away for {pause} s: acts after {took:.1f} s")
        assert took <= 20
        assert await space.replicas(NAME) == steady.workers
        await steady.same_workers(before)


async def test_a_redis_that_is_away_for_two_minutes(steady: Steady) -> None:
    """S13: held all the time, then on within two ticks."""
    (valkey,) = [c for c in node().containers() if is_valkey(c, steady.space)]
    async with steady.unmoved():
        os.kill(valkey.pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(120)
            assert await steady.store_is("False", "StoreUnavailable")
        finally:
            os.kill(valkey.pid, signal.SIGCONT)
        await until(
            "all is well", lambda: steady.store_is("True", "AsExpected"), seconds=3, every=0.1
        )


async def test_a_redis_that_restarts(steady: Steady) -> None:
    (valkey,) = [c for c in node().containers() if is_valkey(c, steady.space)]
    async with steady.unmoved():
        node().kill_container(valkey.pod_uid, valkey.name)
        await asyncio.sleep(2)
        await until("all is well", lambda: steady.store_is("True", "AsExpected"), seconds=60)


async def test_five_applies(steady: Steady) -> None:
    """S23"""
    async with steady.unmoved():
        for _ in range(5):
            await steady.space.operator(replicas=2)
            await steady.space.apply_again(NAME)
            await steady.acts(seconds=20)
