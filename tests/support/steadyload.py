"""Queues with more jobs than their budgets allow, on one `llmqueue up`, and what the simulated
providers counted meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmqueue.client import Client, JobSpec
from support.fakeprovider import FakeProviderProcess
from support.localup import LocalUp

WINDOW_SECONDS = 61.5
"""A minute, the second of margin, and the sub-window of half a second: what a charge stays for."""
_SPARE = 1.2
_SPARE_JOBS = 20
"""More work than can be done in the time, its beginning and its end."""
_FIRST_CALL_SECONDS = 30.0
_LOOK_SECONDS = 0.2
_DRAIN_SECONDS = 30.0
_MANIFEST = """
---
apiVersion: llmqueue.dev/v1alpha1
kind: LLMQueue
metadata: {{name: {load.name}}}
spec:
  provider: {{type: openai, baseURL: "{url}/v1", credentialsSecretRef: {{name: simulated}}}}
  limits: {{{load.field}: {load.limit}}}
  scaling: {{expectedCallSeconds: {load.call_seconds}}}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One queue: its limit a minute, what the provider counts for each job, how long a call takes.

    `field` is that of spec.limits, `option` that of the simulated provider.
    """

    name: str
    field: str
    option: str
    limit: int
    charge: int = 1
    call_seconds: int
    tells_limits: bool = True
    """The provider's answers have its limits in their headers."""

    def provider(self) -> FakeProviderProcess:
        return FakeProviderProcess(
            **{self.option: self.limit},
            latency=self.call_seconds,
            no_limit_headers=not self.tells_limits,
        )

    def manifest(self, url: str) -> str:
        return _MANIFEST.format(load=self, url=url)

    def allowed(self, windows: int) -> float:
        """Charge that would fit if no moment of so many windows were lost."""
        return self.limit * windows * WINDOW_SECONDS / 60

    def jobs(self, windows: int) -> list[JobSpec]:
        count = round(_SPARE * self.allowed(windows) / self.charge) + _SPARE_JOBS
        return [self._job(number) for number in range(count)]

    def _job(self, number: int) -> JobSpec:
        # The larger of input and output counts, so three quarters in text change nothing.
        text = f"{number:06} " + "word" * (self.charge * 3 // 4)
        messages = [{"role": "user", "content": text}]
        return JobSpec(payload={"model": "m", "max_tokens": self.charge, "messages": messages})

    def charged(self, call: dict[str, Any]) -> int:
        """What the provider counted for a call."""
        return int(call["reserved_tokens"]) if self.option == "tpm" else 1


RPM_60 = Load(name="rpm-60", field="requestsPerMinute", option="rpm", limit=60, call_seconds=8)
RPM_600 = Load(name="rpm-600", field="requestsPerMinute", option="rpm", limit=600, call_seconds=2)
TPM_20K = Load(
    name="tpm-20k",
    field="tokensPerMinute",
    option="tpm",
    limit=20_000,
    charge=4_000,
    call_seconds=8,
)


@dataclass(frozen=True, slots=True)
class Figures:
    """What came of one load. `use`: the share of the allowed that was charged."""

    load: Load
    use: float
    worst_60s: int
    answered_429: int
    calls: int
    failed: int
    billed_twice: int
    waiting: int

    def __str__(self) -> str:
        return (
            f"{self.load.name}: use {self.use:.3f}, worst minute {self.worst_60s} of"
            f" {self.load.limit}, {self.answered_429} 429s, {self.calls} calls,"
            f" {self.waiting} waiting"
        )


class Steady:
    """The loads while they run, and what they came to in the end."""

    def __init__(self, machine: LocalUp, providers: dict[Load, FakeProviderProcess]) -> None:
        self.machine, self.providers = machine, providers
        self._process = machine.processes[-1]

    async def enqueue(self, windows: int) -> None:
        """More jobs than so many windows allow."""
        async with self.machine.store() as store:
            for load in self.providers:
                await Client(store).enqueue_many(load.name, load.jobs(windows))

    async def all_called(self) -> float:
        """Until every provider has seen a call; returns when the last one did, in Unix seconds."""
        providers = self.providers.values()
        async with asyncio.timeout(_FIRST_CALL_SECONDS):
            while not all(firsts := [(await each.stats())["first_start"] for each in providers]):
                await asyncio.sleep(_LOOK_SECONDS)
        return max(firsts)

    async def pass_windows(self, windows: int) -> None:
        """Until every provider has seen so many windows since its first call."""
        first = await self.all_called()
        await asyncio.sleep(first + windows * WINDOW_SECONDS - time.time())

    async def figures(self, windows: int) -> list[Figures]:
        """End it all, then read what was counted over its whole time."""
        waiting = {
            load: (await self.machine.status(f"default/{load.name}"))["states"]["ready"]
            for load in self.providers
        }
        self._process.terminate()
        assert await self.machine.end(self._process, seconds=_DRAIN_SECONDS) == 0
        return [await self._figures(load, windows, waiting[load]) for load in self.providers]

    async def _figures(self, load: Load, windows: int, waiting: int) -> Figures:
        stats, calls = await self.providers[load].stats(), await self.providers[load].calls()
        end = calls[0]["start"] + windows * WINDOW_SECONDS
        charged = sum(load.charged(call) for call in calls if call["start"] < end)
        assert {load.charged(call) for call in calls} == {load.charge}
        return Figures(
            load=load,
            use=charged / load.allowed(windows),
            worst_60s=stats["worst_60s"],
            answered_429=stats["answered_429"],
            calls=len(calls),
            failed=stats["calls"] - stats["ok"],
            billed_twice=stats["billed_twice"],
            waiting=waiting,
        )


@asynccontextmanager
async def steady(folder: Path, *loads: Load) -> AsyncIterator[Steady]:
    """An idle `up` with a queue and a provider for each load."""
    async with AsyncExitStack() as stack:
        providers = {load: await stack.enter_async_context(load.provider()) for load in loads}
        machine = await stack.enter_async_context(LocalUp(folder))
        machine.manifest.write_text(
            "".join(load.manifest(provider.url) for load, provider in providers.items())
        )
        keys = folder / "keys"
        keys.write_text("simulated=not-a-real-key\n")
        await machine.up("--json", "--credentials-file", str(keys))
        yield Steady(machine, providers)
