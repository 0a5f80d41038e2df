"""Programs out of Debian's packages, unpacked and not installed: no service is set up or started."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import tempfile
from pathlib import Path

from support.checkout import ROOT
from support.leftout import leave_out

CACHE = ROOT / ".cluster" / "debian"
_PACKAGES = {"promtool": "prometheus", "amtool": "prometheus-alertmanager"}


def debian_program(name: str) -> str:
    """Its path: the machine's own, else out of the package. The test that asks is left out where
    neither can be had."""
    found = shutil.which(name)
    if found is not None:
        return found
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            return str(_unpacked(name))
        except (OSError, subprocess.CalledProcessError) as exc:
            detail = getattr(exc, "stderr", None) or exc
            leave_out(f"{name}, of the package {_PACKAGES[name]}, can't be fetched: {detail}")


def _unpacked(name: str) -> Path:
    program = CACHE / name
    if program.exists():
        return program
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        try:
            _run("apt-get", "-qq", "download", _PACKAGES[name], folder=folder)
        except subprocess.CalledProcessError:  # a new machine has no lists of packages
            _run("apt-get", "-qq", "update", folder=folder)
            _run("apt-get", "-qq", "download", _PACKAGES[name], folder=folder)
        (package,) = Path(folder).glob("*.deb")
        _run("dpkg", "-x", str(package), "content", folder=folder)
        Path(folder, "content", "usr", "bin", name).rename(program)
    return program


def _run(*command: str, folder: str) -> None:
    subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
