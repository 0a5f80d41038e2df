"""What the chart renders, as Helm renders it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "llmqueue"


def helm() -> str:
    found = shutil.which("helm") or ROOT / ".cluster" / "bin" / "helm"
    if not Path(found).exists():
        missing = "helm is missing: `make cluster-up` fetches it"
        if os.environ.get("LLMQUEUE_TEST_COMPLETE"):
            pytest.fail(missing)
        pytest.skip(f"LEFT OUT: {missing}")
    return str(found)


def rendered(*options: str, release: str = "test", namespace: str = "team") -> list[dict[str, Any]]:
    """The objects, in the order in which Helm has them."""
    command = [helm(), "template", release, str(CHART), "--namespace", namespace, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def rules(*options: str) -> dict[str, Any]:
    """The PrometheusRule's spec: what a file of rules holds."""
    objects = rendered("--set=rules.enabled=true", *options)
    (found,) = [each for each in objects if each["kind"] == "PrometheusRule"]
    return dict(found["spec"])
