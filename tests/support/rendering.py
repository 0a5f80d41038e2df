"""What the chart renders, as Helm renders it."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.tool import ClusterError, binaries, layout

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "llmqueue"


def helm() -> str:
    """Its path: the machine's own, else the one that the cluster's tool fetches. The test that asks
    is left out where neither can be had."""
    found = shutil.which("helm")
    if found is not None:
        return found
    try:
        binaries.provide_tools()
    except ClusterError as exc:
        if os.environ.get("LLMQUEUE_TEST_COMPLETE"):
            pytest.fail(str(exc))
        pytest.skip(f"LEFT OUT: {exc}")
    return str(layout.BIN / "helm")


def template(
    *options: str, release: str = "test", namespace: str = "team", chart: Path = CHART
) -> subprocess.CompletedProcess[str]:
    """`helm template`, whatever it says."""
    command = [helm(), "template", release, str(chart), "--namespace", namespace, *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def rendered(*options: str, release: str = "test", namespace: str = "team") -> list[dict[str, Any]]:
    """The objects, in the order in which Helm has them."""
    text = _rendering(options, release, namespace)
    return [each for each in yaml.load_all(text, Loader=yaml.CSafeLoader) if each]


@functools.cache
def _rendering(options: tuple[str, ...], release: str, namespace: str) -> str:
    """Files that `options` name are not to change meanwhile."""
    done = template(*options, release=release, namespace=namespace)
    assert done.returncode == 0, done.stderr
    return done.stdout


def refusal(*options: str) -> str:
    """Why Helm does not render these values; a schema's refusal begins in a line of its own."""
    done = template(*options)
    assert done.returncode != 0, "these values were taken"
    return done.stderr


def rules(*options: str) -> dict[str, Any]:
    """The PrometheusRule's spec: what a file of rules holds."""
    objects = rendered("--set=rules.enabled=true", *options)
    (found,) = [each for each in objects if each["kind"] == "PrometheusRule"]
    return dict(found["spec"])
