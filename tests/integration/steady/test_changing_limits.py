"""A provider changes its limit while its budget is in full use, with and without saying so."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from support.fakeprovider import FakeProviderProcess
from support.steadyload import Load, Steady, steady

LEAST_USE = 0.9
MOST_REFUSED = 0.02
SETTLED_SECONDS = 120.0
"""After a change: by then the limit is known."""
MEASURED_SECONDS = 62.0
FIRST_SECONDS = 20.0
"""Of these nothing is asked: somebody has to be refused first."""
TOLD = Load(name="told", field="requestsPerMinute", option="rpm", limit=300, call_seconds=2)
SILENT = Load(
    name="silent",
    field="requestsPerMinute",
    option="rpm",
    limit=300,
    call_seconds=2,
    tells_limits=False,
)


async def change(run: Steady, rpm: int) -> float:
    """All providers at once; returns when, in Unix seconds."""
    for provider in run.providers.values():
        await provider.limits(rpm=rpm)
    return time.time()


async def measure(provider: FakeProviderProcess, rpm: int, since: float) -> tuple[float, float]:
    """Share of the limit that is in use now, and of 429s among all calls since the change."""
    calls, now = await provider.calls(), time.time()
    accepted = [call for call in calls if call["status"] != 429]
    recent = sum(now - MEASURED_SECONDS <= call["start"] for call in accepted)
    later = [call for call in calls if call["start"] >= since + FIRST_SECONDS]
    refused = sum(call["status"] == 429 for call in later)
    return recent / (rpm * MEASURED_SECONDS / 60), refused / max(1, len(later))


async def settle_down(run: Steady, rpm: int, since: float) -> list[tuple[str, float, float]]:
    """What each load comes to once it had its time."""
    await asyncio.sleep(since + SETTLED_SECONDS + MEASURED_SECONDS - time.time())
    found = [
        (load.name, *await measure(provider, rpm, since))
        for load, provider in run.providers.items()
    ]
    for name, use, refused in found:
        print(f"{name} at {rpm} a minute: use {use:.3f}, 429s {refused:.4f}")
    return found


def check(found: list[tuple[str, float, float]]) -> None:
    for name, use, refused in found:
        assert use >= LEAST_USE, name
        assert refused <= MOST_REFUSED, name


async def limits_shown(run: Steady, load: Load) -> dict[str, Any]:
    (shown,) = (await run.machine.status(f"default/{load.name}"))["limits"]
    return dict(shown)


@pytest.mark.timeout(300)
async def test_the_provider_allows_half_of_what_is_declared(tmp_path: Path) -> None:
    """S42: from the first call on; the status shows what was learned."""
    async with steady(tmp_path, TOLD, SILENT) as run:
        since = await change(run, 150)
        await run.enqueue(windows=3)
        found = await settle_down(run, 150, since)
        shown = {load: await limits_shown(run, load) for load in run.providers}
        figures = await run.figures(windows=3)
    check(found)
    assert (shown[TOLD]["declared"], shown[TOLD]["effective"]) == (300, 150)
    assert shown[SILENT]["effective"] < 300
    for each in figures:
        assert (each.failed - each.answered_429, each.billed_twice) == (0, 0), each
        assert each.waiting > 0, "the budget was not the limit"


@pytest.mark.soak
@pytest.mark.timeout(700)
async def test_the_provider_halves_and_doubles_its_limit(tmp_path: Path) -> None:
    """Q19, S42: in the middle of full use."""
    async with steady(tmp_path, TOLD, SILENT) as run:
        await run.enqueue(windows=8)
        await run.pass_windows(1)
        lowered = await settle_down(run, 150, await change(run, 150))
        raised = await settle_down(run, 300, await change(run, 300))
        figures = await run.figures(windows=8)
    check(lowered)
    check(raised)
    for each in figures:
        assert (each.failed - each.answered_429, each.billed_twice) == (0, 0), each
        assert each.waiting > 0, "the budget was not the limit"
