"""Two LLMQueues on one account, each with pods of its own."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import pytest

from cluster.bench import Kube, ProviderPod, Space, until

RPM = 600
WINDOW_SECONDS = 61.5
SETTLE_SECONDS = 5.0
SCALING = {"slotsPerWorker": 5, "expectedCallSeconds": 1, "stabilizationSeconds": 10}


async def queue(
    space: Space, at: ProviderPod | None, name: str, weight: int, rpm: int = RPM
) -> None:
    await space.queue(
        name,
        at,
        limits={
            "requestsPerMinute": rpm,
            "sharedBudget": {"name": "account", "weight": weight},
        },
        scaling=SCALING,
        timeouts={"requestSeconds": 20, "attemptSeconds": 30},
        gracePeriods={"drainSeconds": 30},
    )
    await space.served(name)


async def share(kube: Kube, *, windows: int) -> None:
    """Both are busy, and one of them gets new pods in the middle of it."""
    async with Space(kube, "sharing") as space:
        provider = await space.provider(rpm=RPM, latency="1")
        await space.operator()
        for name, weight in (("heavy", 2), ("light", 1)):
            await queue(space, provider, name, weight)
            await space.enqueue(name, RPM * (windows + 1), latency=1, model=name)

        async def both_at_work() -> bool:
            return set(await counted(provider, 0, time.time())) == {"heavy", "light"}

        await until("both are at work", both_at_work, seconds=60)
        begin = time.time() + SETTLE_SECONDS
        end = begin + windows * WINDOW_SECONDS
        await asyncio.sleep(begin + 10 - time.time())
        before = {pod["metadata"]["uid"] for pod in await space.ready_pods("light")}
        await space.patch("light", {"worker": {"env": [{"name": "ROUND", "value": "2"}]}})
        await asyncio.sleep(end - time.time())
        found = await counted(provider, begin, end)
        stats = await provider.stats()
        after = {pod["metadata"]["uid"] for pod in await space.ready_pods("light")}
        allowed = RPM * windows * WINDOW_SECONDS / 60
        print(
            f"{dict(found)}: {sum(found.values()) / allowed:.3f} of the budget,"
            f" {found['heavy'] / found['light']:.2f} : 1, worst minute {stats['worst_60s']},"
            f" {stats['answered_429']} 429s"
        )
        assert stats["worst_60s"] <= RPM
        assert (stats["answered_429"], stats["billed_twice"]) == (0, 0)
        assert sum(found.values()) >= 0.93 * allowed
        assert found["heavy"] == pytest.approx(2 * found["light"], rel=0.1)
        assert after
        assert not before & after, "the rollout was over"
        for name in ("heavy", "light"):
            assert (await space.counts(name))["dead"] == 0


async def counted(provider: ProviderPod, since: float, until_: float) -> Counter[str]:
    """Calls of each queue, whose name is their model, that began in a time (Unix seconds)."""
    calls = await provider.calls()
    return Counter(call["model"] for call in calls if since <= call["start"] < until_)


@pytest.mark.timeout(300)
async def test_two_to_one_during_a_rollout(kube: Kube) -> None:
    """S46: 400 and 200 of 600 a minute, never over together, while pods are replaced."""
    await share(kube, windows=1)


@pytest.mark.soak
@pytest.mark.serial
@pytest.mark.timeout(700)
async def test_two_to_one_for_five_minutes(kube: Kube) -> None:
    """S46: the same for five minutes."""
    await share(kube, windows=5)


async def test_members_that_declare_different_limits_are_told(kube: Kube) -> None:
    """The lowest counts, for both, and both say so; one limit for all ends it."""
    async with Space(kube, "conflict") as space:
        await space.operator()
        await queue(space, None, "one", 1)
        await queue(space, None, "two", 1, rpm=60)

        async def both(status: str) -> bool:
            found = [(await space.condition(name, "BudgetConflict")) for name in ("one", "two")]
            return [each.get("status") for each in found] == [status, status]

        await until("both are told", lambda: both("True"), seconds=30)
        assert "requestsPerMinute" in (await space.condition("one", "BudgetConflict"))["message"]
        entry = (await space.store.registry())[f"{space.name}/one"]
        assert [limit.limit for limit in entry.limits] == [60]
        await space.patch("one", {"limits": {"requestsPerMinute": 60}})

        async def over() -> bool:
            found = [(await space.condition(name, "BudgetConflict")) for name in ("one", "two")]
            return all(each.get("status") != "True" for each in found)

        await until("nobody is told any more", over, seconds=30)
