"""Two LLMQueues on one budget, each with workers of its own, as their one provider counts."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from llmqueue.client import Client, JobSpec
from support.fakeprovider import FakeProviderProcess
from support.localup import LocalUp

RPM = 600
WINDOW_SECONDS = 61.5
ALONE_SECONDS = 20.0
_LOOK_SECONDS = 0.1
_MANIFEST = """
---
apiVersion: llmqueue.dev/v1alpha1
kind: LLMQueue
metadata: {{name: {name}}}
spec:
  provider: {{type: openai-compatible, baseURL: "{url}/v1"}}
  limits: {{requestsPerMinute: 600, sharedBudget: {{name: account, weight: {weight}}}}}
  scaling: {{expectedCallSeconds: 1}}
"""


@dataclass
class Shared:
    """`heavy` with weight 2 and `light` with weight 1; jobs carry the queue's name as their model."""

    machine: LocalUp
    fake: FakeProviderProcess

    async def enqueue(self, queue: str, count: int) -> None:
        messages = [{"role": "user", "content": "hi"}]
        spec = JobSpec(payload={"model": queue, "max_tokens": 5, "messages": messages})
        async with self.machine.store() as store:
            await Client(store).enqueue_many(queue, [spec] * count)

    async def counted(self, since: float, until: float) -> Counter[str]:
        """Calls of each queue that began in a time, in Unix seconds."""
        calls = await self.fake.calls()
        return Counter(call["model"] for call in calls if since <= call["start"] < until)

    async def first_call(self, queue: str) -> float:
        async with asyncio.timeout(30):
            while True:
                starts = [c["start"] for c in await self.fake.calls() if c["model"] == queue]
                if starts:
                    return min(starts)
                await asyncio.sleep(_LOOK_SECONDS)


@asynccontextmanager
async def shared(folder: Path) -> AsyncIterator[Shared]:
    async with FakeProviderProcess(rpm=RPM, latency=1) as fake, LocalUp(folder) as machine:
        machine.manifest.write_text(
            "".join(
                _MANIFEST.format(name=name, url=fake.url, weight=weight)
                for name, weight in (("heavy", 2), ("light", 1))
            )
        )
        await machine.up("--json")
        yield Shared(machine, fake)


async def share(folder: Path, *, windows: int) -> None:
    async with shared(folder) as run:
        await run.enqueue("heavy", 1500 + RPM * windows)
        alone_from = await run.first_call("heavy")
        await asyncio.sleep(alone_from + ALONE_SECONDS - time.time())
        alone = await run.counted(alone_from, alone_from + ALONE_SECONDS)
        asked = time.time()
        await run.enqueue("light", RPM * windows)
        joined = await run.first_call("light")
        both_from = joined + 5
        await asyncio.sleep(both_from + windows * WINDOW_SECONDS - time.time())
        both = await run.counted(both_from, both_from + windows * WINDOW_SECONDS)
        status = {n: await run.machine.status(f"default/{n}") for n in ("heavy", "light")}
        stats = await run.fake.stats()
    allowed = RPM * windows * WINDOW_SECONDS / 60
    print(
        f"\nalone {alone['heavy'] / (RPM * ALONE_SECONDS / 60):.3f} of the budget;"
        f" first call of the other after {joined - asked:.2f} s; both {dict(both)}:"
        f" {sum(both.values()) / allowed:.3f} of the budget, {both['heavy'] / both['light']:.2f} : 1;"
        f" worst minute {stats['worst_60s']}; {stats['answered_429']} 429s"
    )
    assert alone["heavy"] >= 0.9 * RPM * ALONE_SECONDS / 60, "an idle queue's share is lent"
    assert joined - asked < 5, "a worker had to be started, and the next grants were its"
    assert sum(both.values()) >= 0.95 * allowed
    assert both["heavy"] == pytest.approx(2 * both["light"], rel=0.05)
    assert stats["worst_60s"] <= RPM
    assert (stats["answered_429"], stats["billed_twice"]) == (0, 0)
    assert {name: each["bound_by"] for name, each in status.items()} == {
        "heavy": "Share",
        "light": "Share",
    }


@pytest.mark.timeout(250)
async def test_two_to_one_for_a_minute(tmp_path: Path) -> None:
    """S46: 600 for one that is alone, 400 and 200 for both, never over 600 together."""
    await share(tmp_path, windows=1)


@pytest.mark.soak
@pytest.mark.timeout(600)
async def test_two_to_one_for_five_minutes(tmp_path: Path) -> None:
    """S46: the same for five minutes."""
    await share(tmp_path, windows=5)
