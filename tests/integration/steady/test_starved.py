"""A machine without a core to spare delays every process: no minute at the provider is overfull."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from llmqueue_cli.local.parentage import end_with_parent
from support.steadyload import RPM_600, Load, steady

PER_CORE = 3
STARVED_SECONDS = 57.0
CALM_SECONDS = 16.0
"""A window has passed since the first call, and what comes now meets those that were late."""
RPM_180 = Load(name="rpm-180", field="requestsPerMinute", option="rpm", limit=180, call_seconds=2)


@contextmanager
def starved() -> Iterator[None]:
    """Every core has several processes that never rest."""
    burners = [
        subprocess.Popen(
            # Isolated: none of them is to be measured, or to import anything.
            [sys.executable, "-I", "-S", "-c", "while True: pass"],
            # Linux shares cores fairly between sessions: as one, they would get a single share.
            start_new_session=True,
            preexec_fn=end_with_parent(signal.SIGKILL),  # noqa: PLW1509 - only one prctl call
        )
        for _ in range(PER_CORE * len(os.sched_getaffinity(0)))
    ]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


@pytest.mark.timeout(200)
async def test_no_minute_is_overfull_on_a_starved_machine(tmp_path: Path) -> None:
    """Q19: calls that leave late and, a minute on, calls that leave at once: the hardest order for
    a window."""
    async with steady(tmp_path, RPM_180, RPM_600) as run:
        with starved():
            await run.enqueue(windows=2)
            await run.all_called()
            await asyncio.sleep(STARVED_SECONDS)
        await asyncio.sleep(CALM_SECONDS)
        found = await run.figures(windows=1)
    print(*found, sep="\n")
    for each in found:
        assert each.worst_60s <= each.load.limit, each
        assert (each.answered_429, each.failed, each.billed_twice) == (0, 0, 0), each
        assert each.calls > each.load.limit, "more than one window"
