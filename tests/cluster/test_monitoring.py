"""A real Prometheus scrapes through the shipped monitors: what it sees, and what it tells of."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

import pytest
import pytest_asyncio

from cluster.bench import Kube, ProviderPod, Space, node, until
from cluster.bench.monitored import Monitored, short_alerts
from cluster.bench.steady import is_valkey
from llmqueue.endings import end
from llmqueue.errors import StoreUnavailable

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

BUSY = "busy"
"""Works all the time."""
FAULTY = ("storm", "quota", "key", "breaker")
"""Queues with a provider of their own that misbehaves."""
PRICED = "gpt-4o-mini"
"""A model whose price is published."""
LIMITS = {"requestsPerMinute": 600}
ONE = {"minReplicas": 1, "maxReplicas": 1, "slotsPerWorker": 4}
BREAKER = {"failures": 8, "windowSeconds": 60, "openSeconds": 300, "probeSeconds": 300}
ALERTS = short_alerts(
    LLMQueueRateLimited={"answers": 2, "window": "20s", "share": 0.3},
    # Judged by the time since the start: it must not fire while the run is quiet.
    LLMQueueWorkersMissing={"for": "30s"},
    LLMQueueOperatorNotReconciling={"for": "30s"},
    LLMQueueNotMoving={"for": "60s", "window": "60s"},
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def monitored(cluster_files, prometheus_crds) -> AsyncIterator[Monitored]:  # type: ignore[no-untyped-def]
    """With a queue that is at work."""
    async with (
        Kube.connected(*cluster_files) as kube,
        Space(kube, "monitored") as space,
        Monitored.started(space, ALERTS) as made,
        made.dashboards([BUSY, *FAULTY]),
    ):
        await space.queue(BUSY, await space.provider(), limits=LIMITS, scaling=ONE)
        await space.served(BUSY)
        working = asyncio.create_task(_work(space))
        try:
            yield made
        finally:
            await end(working)


async def _work(space: Space) -> None:
    while True:
        with suppress(StoreUnavailable):  # a test takes it away
            await space.enqueue(BUSY, 5, model=PRICED, latency=0.5, output=20)
        await asyncio.sleep(3)


# ---------------------------------------------------------------- targets


async def test_operator_and_workers_are_scraped(monitored: Monitored) -> None:
    """Through the selectors of the shipped monitors; facts of queues carry the queue's namespace."""
    space, prometheus = monitored.space, monitored.prometheus

    async def all_up() -> bool:
        targets = await prometheus.targets()
        jobs = sorted(each.labels["job"] for each in targets if each.up)
        return jobs == ["llmqueue-operator", "llmqueue-operator", "llmqueue-worker"]

    try:
        await until("two operators and a worker are scraped", all_up, seconds=90)
    except AssertionError:
        print("targets:", *await prometheus.targets(), sep="\n")
        raise
    (ready,) = await prometheus.query(f'llmqueue_condition{{queue="{BUSY}", type="Ready"}}')
    assert ready.labels["namespace"] == space.name
    assert "exported_namespace" not in ready.labels
    (slots,) = await prometheus.query("llmqueue_worker_slots")
    (pod,) = await space.pods(BUSY)
    assert slots.value == ONE["slotsPerWorker"]
    assert {
        "namespace": space.name,
        "queue": BUSY,
        "job": "llmqueue-worker",
        "pod": pod["metadata"]["name"],
    }.items() <= slots.labels.items()


async def test_a_draining_worker_is_scraped_to_its_end(monitored: Monitored) -> None:
    """Its samples arrive while its last call runs; then it is no target any more."""
    space, prometheus = monitored.space, monitored.prometheus
    await space.queue(
        "long",
        space.providers[0],
        limits=LIMITS,
        timeouts={"requestSeconds": 60, "attemptSeconds": 60},
        gracePeriods={"drainSeconds": 70},
        scaling={**ONE, "minReplicas": 0},
    )
    await space.served("long")
    await space.enqueue("long", 1, latency=25)
    (sample,) = await until(
        "the call is seen",
        lambda: prometheus.query('llmqueue_worker_in_flight{queue="long"} == 1'),
        seconds=60,
    )
    pod = sample.labels["pod"]
    await space.kube.run("-n", space.name, "delete", "pod", pod, "--wait=false")
    deleted = time.time()

    async def scraped_since() -> float:
        """By how much the last sample is younger than the deletion."""
        last = f'timestamp(llmqueue_worker_in_flight{{pod="{pod}"}} == 1)'
        return max((each.value - deleted for each in await prometheus.query(last)), default=0.0)

    await until("it is scraped while it drains", _at_least(scraped_since, 10), seconds=30)
    (named,) = [p for p in await space.pods("long") if p["metadata"]["name"] == pod]
    assert "deletionTimestamp" in named["metadata"]
    await space.finished("long", 1, seconds=60)

    async def no_target() -> bool:
        return pod not in {each.labels["pod"] for each in await prometheus.targets()}

    await until("it is no target any more", no_target, seconds=60)
    await space.kube.run("-n", space.name, "delete", "llmqueue", "long")


def _at_least(look: Callable[[], Awaitable[float]], least: float) -> Callable[[], Awaitable[bool]]:
    async def compared() -> bool:
        return await look() >= least

    return compared


# ---------------------------------------------------------------- troubles of single queues


@dataclass(frozen=True, slots=True)
class Trouble:
    """Jobs that meet a fault at a provider until it is mended; then `resume` where the queue waits
    for a person."""

    alert: str
    queue: str
    faults: tuple[dict[str, object], ...]
    resume: bool = True


TROUBLES = [
    # Where nearly all calls fail the breaker opens first, and is what is told.
    Trouble(
        "LLMQueueRateLimited", "storm", ({"fault": "rate429", "probability": 0.6},), resume=False
    ),
    Trouble("LLMQueueQuotaExhausted", "quota", ({"fault": "insufficient_quota"},)),
    Trouble("LLMQueueCredentialRejected", "key", ({"fault": "401"},)),
    Trouble("LLMQueueBreakerOpen", "breaker", ({"fault": "500"},)),
]


async def test_troubles_of_queues_are_told_and_over_once_mended(monitored: Monitored) -> None:
    """All at once, each of a queue of its own, beside one that works."""
    await _together(
        *(_provider_trouble(monitored, each) for each in TROUBLES),
        _dead_letters(monitored),
        _missing_image(monitored),
        _nearly_full(monitored),
    )
    for trouble in TROUBLES:
        assert monitored.fired[trouble.alert] == {trouble.queue}


async def _provider_trouble(monitored: Monitored, trouble: Trouble) -> None:
    space, queue = monitored.space, trouble.queue
    provider = await space.provider(f"provider-{queue}")
    await provider.faults(trouble.faults)
    await _queue(space, queue, provider)
    await space.enqueue(queue, 40, latency=0.2)
    await monitored.firing(trouble.alert, queue, seconds=90)
    await provider.faults([])
    if trouble.resume:
        await space.store.resume(f"{space.name}/{queue}")
    await space.finished(queue, 40, seconds=90)
    await monitored.gone(trouble.alert, queue, seconds=60)
    await _suspend(space, queue)


async def _dead_letters(monitored: Monitored) -> None:
    """By their severity; over once the last one is a while ago."""
    space = monitored.space
    await _queue(space, "dead", space.providers[0])
    await space.enqueue("dead", 1)
    await space.finished("dead", 1, seconds=60)  # its series are there
    await space.enqueue("dead", 1, fault="400")  # type: ignore[arg-type]
    await space.enqueue("dead", 1, fault="context_too_long")  # type: ignore[arg-type]
    for alert in ("LLMQueueDeadLettersError", "LLMQueueDeadLettersWarning"):
        await monitored.firing(alert, "dead", seconds=60)
    for alert in ("LLMQueueDeadLettersError", "LLMQueueDeadLettersWarning"):
        await monitored.gone(alert, "dead", seconds=60)
    assert "LLMQueueDeadLettersCritical" not in monitored.fired
    await _suspend(space, "dead")


async def _missing_image(monitored: Monitored) -> None:
    space, image = monitored.space, "llmqueue.test/nowhere:dev"
    await _queue(space, "image", space.providers[0], worker={"image": image})
    told = await monitored.firing("LLMQueueWorkersFailing", "image", seconds=90)
    print("image missing:", told.annotations["summary"])
    await space.patch("image", {"worker": {"image": None}})
    await monitored.gone("LLMQueueWorkersFailing", "image", seconds=90)
    await _suspend(space, "image")


async def _nearly_full(monitored: Monitored) -> None:
    space = monitored.space
    await _queue(space, "full", None, queue={"maxJobs": 10, "suspend": True}, scaling={})
    jobs = await space.enqueue("full", 9)
    await monitored.firing("LLMQueueFillingUp", "full", seconds=60)
    for job in jobs[:4]:
        await space.store.cancel(job)
    await monitored.gone("LLMQueueFillingUp", "full", seconds=60)


# ---------------------------------------------------------------- troubles of all


async def test_a_redis_that_is_away(monitored: Monitored) -> None:
    (valkey,) = [c for c in node().containers() if is_valkey(c, monitored.space)]
    os.kill(valkey.pid, signal.SIGSTOP)
    try:
        await monitored.firing("LLMQueueRedisUnreachable", seconds=60)
    finally:
        os.kill(valkey.pid, signal.SIGCONT)
    await monitored.gone("LLMQueueRedisUnreachable", seconds=60)


async def test_an_operator_that_is_away(monitored: Monitored) -> None:
    space = monitored.space
    await space.scale_operator(0)
    await monitored.firing("LLMQueueOperatorDown", seconds=60)
    await space.scale_operator(2)
    await monitored.gone("LLMQueueOperatorDown", seconds=90)
    await until("an operator leads", space.leader, seconds=60)


async def test_every_dashboard_query_gave_data(monitored: Monitored) -> None:
    """Somewhere in the run; nothing that is drawn is empty for good."""

    async def all_answered() -> bool:
        return not monitored.unanswered

    try:
        await until("all have", all_answered, seconds=60)
    except AssertionError:
        for query in monitored.unanswered:
            print(f"{query.dashboard}: {query.panel}: {query.expr}")
        raise
    print("fired:", {name: sorted(queues) for name, queues in sorted(monitored.fired.items())})


async def _queue(space: Space, name: str, at: ProviderPod | None, **spec: object) -> None:
    made = {
        "limits": LIMITS,
        "scaling": ONE,
        "circuitBreaker": BREAKER,
        "retry": {"transient": {"delaysSeconds": [1], "maxAttempts": 100}},
        **spec,
    }
    await space.queue(name, at, **made)
    await space.served(name)


async def _suspend(space: Space, name: str) -> None:
    """It has done its part; its worker makes room."""
    await space.patch(name, {"queue": {"suspend": True}, "scaling": {"minReplicas": 0}})


async def _together(*runs: Awaitable[None]) -> None:
    """All to their end; then every failure is told, not the first one only."""
    found = await asyncio.gather(*runs, return_exceptions=True)
    failures = [each for each in found if isinstance(each, BaseException)]
    if failures:
        raise BaseExceptionGroup("troubles", failures)
