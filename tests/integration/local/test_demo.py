"""`llmqueue demo` as a newcomer runs it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

DEMO = (sys.executable, "-m", "llmqueue_cli", "demo", "--json")


def below(pid: int) -> set[int]:
    """All live processes below one."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                status = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if status[0] != "Z":
                parents[int(entry.name)] = int(status[1])
    found, wave = set[int](), {pid}
    while wave:
        wave = {child for child, parent in parents.items() if parent in wave}
        found |= wave
    return found


@pytest.mark.serial
@pytest.mark.timeout(240)
def test_the_demo_keeps_its_promises(tmp_path: Path) -> None:
    started = time.monotonic()
    done = subprocess.run(DEMO, capture_output=True, text=True, check=False, timeout=200)
    took = time.monotonic() - started
    assert done.returncode == 0, done.stderr + done.stdout
    assert len(done.stdout.splitlines()) == 1
    line = json.loads(done.stdout)
    jobs, provider, workers = line["jobs"], line["provider"], line["workers"]
    assert jobs["submitted"] > 300
    assert jobs == {
        "submitted": jobs["submitted"],
        "succeeded": jobs["submitted"],
        "dead": 0,
        "review": 0,
        "lost": 0,
    }
    assert (provider["answered_429"], provider["billed_twice"]) == (0, 0)
    assert provider["injected_429"] > 0
    assert provider["worst_60s"] <= provider["limit"]
    assert line["budget_utilisation"] >= 0.96
    assert workers["killed_busy"] == 0
    assert workers["peak"] >= 4
    assert 0 < line["useful_seconds"] < line["pod_seconds"]
    assert took <= 120


@pytest.mark.timeout(90)
async def test_an_interrupt_leaves_nothing_behind(tmp_path: Path) -> None:
    process = subprocess.Popen(  # noqa: ASYNC220 - returns at once
        DEMO, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={"TMPDIR": str(tmp_path)}
    )
    deadline = time.monotonic() + 30
    while len(below(process.pid)) < 6:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.1)
    started = below(process.pid)
    process.send_signal(signal.SIGINT)
    out, err = await asyncio.to_thread(process.communicate)
    assert process.returncode == 130, err.decode()
    assert (out, b"Traceback" in err) == (b"", False)
    assert started & {int(name) for name in os.listdir("/proc") if name.isdigit()} == set()
    assert os.listdir(tmp_path) == []
