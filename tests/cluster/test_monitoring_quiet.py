"""Nothing is told while all is well: the shipped rules, with their own durations and thresholds."""

from __future__ import annotations

import asyncio
import re
import time

import pytest

from cluster.bench import Kube, Space, until
from cluster.bench.monitored import Monitored, default_alerts

_UNITS = {"s": 1, "m": 60, "h": 3600}
LIMIT = 240
"""Calls a minute; more is asked for, so that there is a backlog all the time."""


@pytest.mark.timeout(300)
async def test_a_minute_of_work_is_quiet(kube: Kube, prometheus_crds: None) -> None:
    """No alert is on its way either: what holds for half a minute would fire one day."""
    await _quiet(kube, seconds=60, longest_pending_seconds=30)


@pytest.mark.soak
@pytest.mark.timeout(1200)
async def test_ten_minutes_of_work_are_quiet(kube: Kube, prometheus_crds: None) -> None:
    await _quiet(kube, seconds=600, longest_pending_seconds=120)


async def _quiet(kube: Kube, *, seconds: float, longest_pending_seconds: float) -> None:
    """A queue at its limit with a backlog, one that comes and goes; on the way a new template for
    workers, a new leader and a rolled operator."""
    async with Space(kube, "quiet") as space, Monitored.started(space) as monitored:
        provider = await space.provider()
        await space.queue(
            "limited",
            provider,
            limits={"requestsPerMinute": LIMIT},
            scaling={"minReplicas": 1, "maxReplicas": 2, "slotsPerWorker": 4},
        )
        await space.queue(
            "now-and-then",
            provider,
            limits={"requestsPerMinute": LIMIT},
            scaling={"maxReplicas": 1, "idleSeconds": 5, "stabilizationSeconds": 2},
        )
        await space.served("limited")
        await space.served("now-and-then")
        await space.enqueue("limited", int(LIMIT * (seconds / 60 + 1)), latency=0.5)
        started = time.monotonic()
        await asyncio.gather(_events(space, seconds=seconds), _now_and_then(space, seconds=seconds))
        assert time.monotonic() - started >= seconds
        counts = await space.counts("limited")
        assert counts["succeeded"] >= LIMIT * seconds / 60 * 0.8, "it did not work"
        assert counts["ready"] > 0, "the backlog ended"
        # There were facts for the rules to judge, from the last leader too.
        facts = 'llmqueue_jobs_granted_total{queue="limited"}'
        await until("facts", lambda: monitored.prometheus.query(facts), seconds=30)
        print("pending:", {k: round(v) for k, v in sorted(monitored.pending_seconds.items())})
        assert monitored.fired == {}
        for name, lasted in monitored.pending_seconds.items():
            most = min(_seconds(default_alerts()[name]["for"]) / 2, longest_pending_seconds)
            assert lasted <= most, f"{name} was on its way for {lasted:.0f} s"


async def _events(space: Space, *, seconds: float) -> None:
    """What happens on an ordinary day, at the same share of any duration."""
    started = time.monotonic()

    async def at(share: float) -> None:
        await asyncio.sleep(max(0.0, started + share * seconds - time.monotonic()))

    await at(0.1)
    await space.patch("limited", {"worker": {"env": [{"name": "FOO", "value": "bar"}]}})
    await at(0.35)
    leader = await space.leader()
    await space.kube.run("-n", space.name, "delete", "pod", leader, "--wait=false")

    async def another() -> bool:
        return await space.leader() not in ("", leader)

    await until("another one leads", another, seconds=40)
    await at(0.6)
    await space.kube.run("-n", space.name, "rollout", "restart", "deployment/llmqueue-operator")
    await at(1.0)


async def _now_and_then(space: Space, *, seconds: float) -> None:
    """From zero workers and back."""
    deadline, done = time.monotonic() + seconds, 0
    while time.monotonic() < deadline:
        await space.enqueue("now-and-then", 5, latency=0.5)
        done += 5
        await asyncio.sleep(min(20.0, max(0.0, deadline - time.monotonic())))
    await space.finished("now-and-then", done, seconds=60)


def _seconds(duration: str) -> float:
    found = re.fullmatch(r"(\d+)([smh])", duration)
    assert found is not None, duration
    return int(found[1]) * _UNITS[found[2]]
