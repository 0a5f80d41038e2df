"""A virtual environment for each peer: each with the newest Redis client that it allows."""

from __future__ import annotations

import hashlib
import subprocess
import sys

from benchmarks.queue.systems import ENVIRONMENTS, REQUIREMENTS, System


def prepare(systems: tuple[System, ...]) -> None:
    """Create what is missing or older than its requirements. Raises CalledProcessError."""
    for name in dict.fromkeys(system.environment for system in systems if system.environment):
        _prepare(name)


def _prepare(name: str) -> None:
    folder = ENVIRONMENTS / name
    requirements = REQUIREMENTS / f"{name}.txt"
    digest = hashlib.sha256(requirements.read_bytes()).hexdigest()
    stamp = folder / "requirements.sha256"
    if stamp.exists() and stamp.read_text() == digest:
        return
    print(f"Installing {name} ...", flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
    subprocess.run(
        [
            str(folder / "bin" / "python"),
            *("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"),
            *("-r", str(requirements)),
        ],
        check=True,
    )
    stamp.write_text(digest)


def version(system: System) -> str:
    """Version of the compared distribution, as installed."""
    code = f"from importlib.metadata import version; print(version({system.distribution!r}))"
    return subprocess.run(
        [str(system.python), "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()
