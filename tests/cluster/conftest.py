"""One cluster for all tests here: the given one, or one of this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cluster.bench.given import KUBECONFIG
from cluster.bench.kube import Kube
from cluster.tool import layout
from support.leftout import leave_out

_CANNOT = 3
_CRD = layout.CHECKOUT / "crds" / "llmqueues.llmqueue.dev.yaml"


def _cluster() -> tuple[Path, Path]:
    """(kubectl, kubeconfig); brings a cluster up where none runs."""
    if KUBECONFIG:
        return Path(shutil.which("kubectl") or layout.BIN / "kubectl"), Path(KUBECONFIG)
    return layout.BIN / "kubectl", Path(_tool("up"))


def _tool(command: str) -> str:
    """The last line of what a command of the cluster's tool prints."""
    found = subprocess.run(
        [sys.executable, "-m", "cluster.tool", command],
        cwd=layout.CHECKOUT,
        env={**os.environ, "PYTHONPATH": str(layout.CHECKOUT / "tests")},
        capture_output=True,
        text=True,
        check=False,
    )
    if found.returncode == _CANNOT:
        leave_out(f"no cluster can run here: {found.stderr.strip()}")
    if found.returncode:
        pytest.fail(f"cluster.tool {command} failed:\n{found.stdout}\n{found.stderr}")
    return found.stdout.strip().splitlines()[-1]


@pytest.fixture(scope="session")
def cluster_files() -> tuple[Path, Path]:
    kubectl, kubeconfig = _cluster()
    subprocess.run(
        [str(kubectl), f"--kubeconfig={kubeconfig}", "apply", "--server-side", "-f", str(_CRD)],
        check=True,
        capture_output=True,
    )
    return kubectl, kubeconfig


@pytest.fixture(scope="session")
def prometheus_crds(cluster_files: tuple[Path, Path]) -> None:
    """Monitors, rules and Prometheus itself can be applied, and their image is on the node."""
    if KUBECONFIG:
        pytest.skip("LEFT OUT: replaces the CRDs of the Prometheus operator, if there are any")
    kubectl, kubeconfig = cluster_files
    command = [str(kubectl), f"--kubeconfig={kubeconfig}"]
    crds = _tool("prometheus")
    for arguments in (
        ["apply", "--server-side", "--force-conflicts", "-f", crds],
        ["wait", "--for=condition=Established", "--timeout=60s", "-f", crds],
    ):
        subprocess.run([*command, *arguments], check=True, capture_output=True)


@pytest.fixture
async def kube(cluster_files: tuple[Path, Path]) -> AsyncIterator[Kube]:
    async with Kube.connected(*cluster_files) as found:
        yield found
