"""SIGTERM through the kubelet, whatever sends it: nothing lost, nothing paid twice."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest
import pytest_asyncio

from cluster.bench import Kube, ProviderPod, Space, until, watching
from llmqueue_operator.kube import DEPLOYMENTS, PODS
from llmqueue_operator.names import QUEUE_LABEL

pytestmark = pytest.mark.asyncio(loop_scope="module")

TIMEOUTS = {"requestSeconds": 20, "attemptSeconds": 30}
GRACE = {"drainSeconds": 30, "shutdownMarginSeconds": 5}
LIMITS = {"requestsPerMinute": 1200}


def scaling(workers: int, slots: int = 1, **more: float) -> dict[str, float]:
    return {
        "minReplicas": workers,
        "maxReplicas": workers,
        "slotsPerWorker": slots,
        "stabilizationSeconds": 2,
        "idleSeconds": 2,
        **more,
    }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def space(cluster_files) -> AsyncIterator[Space]:  # type: ignore[no-untyped-def]
    async with Kube.connected(*cluster_files) as kube, Space(kube, "draining") as made:
        await made.provider()
        await made.operator()
        yield made


@pytest.fixture
def provider(space: Space) -> ProviderPod:
    return space.providers[0]


async def working(space: Space, provider: ProviderPod, name: str, workers: int, **spec) -> None:  # type: ignore[no-untyped-def]
    """An LLMQueue with ready workers."""
    await space.queue(
        name,
        provider,
        **{
            "limits": LIMITS,
            "timeouts": TIMEOUTS,
            "gracePeriods": GRACE,
            "scaling": scaling(workers),
            **spec,
        },
    )
    await space.served(name)

    async def ready() -> bool:
        return len(await space.ready_pods(name)) == workers

    await until(f"{workers} workers of {name} are ready", ready, seconds=60)


async def ended(space: Space, provider: ProviderPod, name: str, jobs: list[str]) -> None:
    """All jobs succeeded and were billed once."""
    await space.finished(name, len(jobs), seconds=90)
    billed = await provider.billed()
    assert {job: billed.get(job) for job in jobs} == dict.fromkeys(jobs, 1)
    counts = await space.counts(name)
    assert counts["succeeded"] == len(jobs)


async def remove(space: Space, name: str) -> None:
    await space.kube.run("-n", space.name, "delete", "llmqueue", name)


async def test_no_busy_worker_is_named_while_an_idle_one_exists(
    space: Space, provider: ProviderPod
) -> None:
    """S1, S5, S7: of eight workers four are busy; the idle four go first, the others as they end."""
    await working(space, provider, "down", 8)
    long = await space.enqueue("down", 4, latency=12)
    budget = f"{space.name}/down"
    busy: dict[str, int] = {}
    named: list[tuple[str, int]] = []

    async def all_started() -> bool:
        return (await space.counts("down"))["sent"] == 4

    await until("four calls run", all_started, seconds=20)
    async with watching(space.kube, PODS.path(space.name), labels=f"{QUEUE_LABEL}=down") as watch:
        await space.patch("down", {"scaling": {"minReplicas": 0}})
        deadline = time.monotonic() + 40
        seen: set[str] = set()
        while len(seen) < 8 and time.monotonic() < deadline:
            for _, _, pod in watch.seen:
                uid = pod["metadata"]["uid"]
                if "deletionTimestamp" in pod["metadata"] and uid not in seen:
                    seen.add(uid)
                    named.append((uid, busy.get(uid, 0)))
            snapshot = await space.store.snapshot(budget, horizon_seconds=0)
            busy = {w.worker.partition(":")[0]: w.in_flight for w in snapshot.workers}
            await asyncio.sleep(0.05)
    assert len(named) == 8
    assert [calls for _, calls in named] == [0] * 8, "a busy pod was named"
    await ended(space, provider, "down", long)
    await remove(space, "down")


async def test_a_rollout_lets_running_calls_end(space: Space, provider: ProviderPod) -> None:
    """S25, S52: a new template under load; the old pods drain and the limit holds."""
    await working(space, provider, "rolled", 3, scaling=scaling(3, slots=2))
    before = {p["metadata"]["uid"] for p in await space.pods("rolled")}
    jobs = await space.enqueue("rolled", 60, latency=2)
    await space.patch("rolled", {"worker": {"env": [{"name": "FOO", "value": "bar"}]}})

    async def renewed() -> bool:
        pods = await space.pods("rolled")
        return len(pods) == 3 and not before & {p["metadata"]["uid"] for p in pods}

    await until("all workers are new", renewed, seconds=60)
    await ended(space, provider, "rolled", jobs)
    assert (await provider.stats())["answered_429"] == 0
    await remove(space, "rolled")


async def test_deleted_and_drained_pods_end_within_their_grace(
    space: Space, provider: ProviderPod
) -> None:
    """`kubectl delete pod` and `kubectl drain` under load: others take over, calls end where they
    are, the pods go long before the grace period is over."""
    await working(space, provider, "moved", 3, scaling=scaling(3, slots=2))
    jobs = await space.enqueue("moved", 60, latency=3)
    first, *rest = await space.pods("moved")
    started = time.monotonic()
    await asyncio.sleep(2)
    await space.kube.run(
        *("-n", space.name, "delete", "pod", first["metadata"]["name"], "--wait=true")
    )
    assert time.monotonic() - started < 15
    node = rest[0]["spec"]["nodeName"]
    try:
        await space.kube.run(
            *("drain", node, f"--pod-selector={QUEUE_LABEL}=moved", "--delete-emptydir-data"),
            *("--ignore-daemonsets", "--timeout=60s"),
        )
    finally:
        await space.kube.run("uncordon", node)
    old = {p["metadata"]["uid"] for p in (first, *rest)}
    assert not old & {p["metadata"]["uid"] for p in await space.pods("moved")}
    await ended(space, provider, "moved", jobs)
    await remove(space, "moved")


async def test_recycling_never_ends_the_container(space: Space, provider: ProviderPod) -> None:
    """Twenty process images, one after the other, and the kubelet saw none of it."""
    await working(space, provider, "recycled", 1, worker={"maxJobs": 1})
    jobs = await space.enqueue("recycled", 21)
    await space.finished("recycled", 21, seconds=110)
    (pod,) = await space.pods("recycled")
    (status,) = pod["status"]["containerStatuses"]
    assert status["restartCount"] == 0
    log = await space.kube.run("-n", space.name, "logs", pod["metadata"]["name"])
    images = sum(json.loads(line)["event"] == "started" for line in log.splitlines())
    assert images >= 21
    await ended(space, provider, "recycled", jobs)
    await remove(space, "recycled")


async def test_a_stream_is_read_to_its_end(space: Space, provider: ProviderPod) -> None:
    """S10, S11: SIGTERM to PID 1 in the middle of a stream: it drains at once, the answer is kept,
    the process ends by itself with 0."""
    await working(space, provider, "streamed", 1)
    (job,) = await space.enqueue("streamed", 1, stream=True, latency=10)

    async def started() -> bool:
        return (await space.counts("streamed"))["sent"] == 1

    await until("the stream runs", started, seconds=20)
    (pod,) = await space.pods("streamed")
    name = pod["metadata"]["name"]
    async with watching(space.kube, PODS.path(space.name), labels=f"{QUEUE_LABEL}=streamed") as w:
        asked_at = datetime.now(UTC)
        await space.kube.run("-n", space.name, "delete", "pod", name, "--wait=false")

        async def draining() -> list[datetime]:
            log = await space.kube.run("-n", space.name, "logs", name)
            return [
                datetime.fromisoformat(line["timestamp"])
                for line in map(json.loads, log.splitlines())
                if line["event"] == "draining"
            ]

        (drains,) = await until("it drains", draining, seconds=8)
        # kubectl's own time is in it; the stream goes on for twice as long
        assert (drains - asked_at).total_seconds() < 5
        await ended(space, provider, "streamed", [job])

        async def terminated() -> list[int]:
            return [
                status["state"]["terminated"]["exitCode"]
                for _, _, each in w.seen
                if each["metadata"]["name"] == name
                for status in each["status"].get("containerStatuses", ())
                if "terminated" in status["state"]
            ]

        codes = await until("the process has ended", terminated, seconds=15)
    assert set(codes) == {0}
    assert (await provider.stats())["by_status"].keys() == {"200"}
    await remove(space, "streamed")


async def test_a_new_template_waits_for_the_next_job(space: Space, provider: ProviderPod) -> None:
    """S39, S51: changed while nobody works, it is complete at once; one job starts one new pod."""
    await space.queue(
        "sleeping", provider, limits=LIMITS, scaling={"maxReplicas": 100, "idleSeconds": 2}
    )
    await space.served("sleeping")
    await space.patch("sleeping", {"worker": {"env": [{"name": "FOO", "value": "new"}]}})

    async def rolled() -> bool:
        found = await space.deployment("sleeping") or {}
        (container,) = found["spec"]["template"]["spec"]["containers"]
        status = found["status"].get("observedGeneration"), found["metadata"]["generation"]
        return {"name": "FOO", "value": "new"} in container["env"] and status[0] == status[1]

    await until("the template is the new one", rolled, seconds=20)
    await space.patch("sleeping", {"worker": {"env": []}})

    async def taken_back() -> bool:
        found = await space.deployment("sleeping") or {}
        (container,) = found["spec"]["template"]["spec"]["containers"]
        return "FOO" not in {each["name"] for each in container["env"]}

    await until("what was taken out of the resource is gone", taken_back, seconds=20)
    assert await space.pods("sleeping") == []
    path = DEPLOYMENTS.path(space.name)
    async with watching(space.kube, path, labels=f"{QUEUE_LABEL}=sleeping") as watch:
        jobs = await space.enqueue("sleeping", 1, latency=1)
        await ended(space, provider, "sleeping", jobs)
    assert watch.values("spec", "replicas") in ([0, 1], [0, 1, 0])
    await remove(space, "sleeping")
