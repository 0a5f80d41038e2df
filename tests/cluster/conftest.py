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

COMPLETE = "LLMQUEUE_TEST_COMPLETE"
"""Set where nothing may be left out."""
_CANNOT = 3
_CRD = layout.CHECKOUT / "crds" / "llmqueues.llmqueue.dev.yaml"


def _cluster() -> tuple[Path, Path]:
    """(kubectl, kubeconfig); brings a cluster up where none runs."""
    if KUBECONFIG:
        return Path(shutil.which("kubectl") or layout.BIN / "kubectl"), Path(KUBECONFIG)
    found = subprocess.run(
        [sys.executable, "-m", "cluster.tool", "up"],
        cwd=layout.CHECKOUT,
        env={**os.environ, "PYTHONPATH": str(layout.CHECKOUT / "tests")},
        capture_output=True,
        text=True,
        check=False,
    )
    if found.returncode == _CANNOT and not os.environ.get(COMPLETE):
        pytest.skip(f"LEFT OUT, no cluster can run here: {found.stderr.strip()}")
    if found.returncode:
        pytest.fail(f"the cluster did not start:\n{found.stdout}\n{found.stderr}")
    return layout.BIN / "kubectl", Path(found.stdout.strip().splitlines()[-1])


@pytest.fixture(scope="session")
def cluster_files() -> tuple[Path, Path]:
    kubectl, kubeconfig = _cluster()
    subprocess.run(
        [str(kubectl), f"--kubeconfig={kubeconfig}", "apply", "--server-side", "-f", str(_CRD)],
        check=True,
        capture_output=True,
    )
    return kubectl, kubeconfig


@pytest.fixture
async def kube(cluster_files: tuple[Path, Path]) -> AsyncIterator[Kube]:
    async with Kube.connected(*cluster_files) as found:
        yield found
