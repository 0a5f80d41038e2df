"""A steady backlog uses its budget up and never goes over it, as the provider counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.steadyload import RPM_60, RPM_600, TPM_20K, steady

LEAST_USE = 0.96


async def keep_to_the_limits(folder: Path, windows: int) -> None:
    async with steady(folder, RPM_60, RPM_600, TPM_20K) as run:
        await run.enqueue(windows)
        await run.pass_windows(windows)
        found = await run.figures(windows)
    print(*found, sep="\n")
    for each in found:
        assert each.worst_60s <= each.load.limit, each
        assert (each.answered_429, each.failed, each.billed_twice) == (0, 0, 0), each
        assert each.waiting > 0, "the budget was not the limit"
        assert each.use >= LEAST_USE, each


@pytest.mark.timeout(200)
async def test_one_window_of_each_kind(tmp_path: Path) -> None:
    """Q19, Q27: 60 and 600 requests, 20,000 tokens a minute, for one window."""
    await keep_to_the_limits(tmp_path, 1)


@pytest.mark.soak
@pytest.mark.timeout(500)
async def test_five_windows_of_each_kind(tmp_path: Path) -> None:
    """Q19, Q24, Q27: the same for five windows."""
    await keep_to_the_limits(tmp_path, 5)
