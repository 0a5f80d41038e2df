"""What the chart renders, as Helm renders it."""

from __future__ import annotations

import functools
import subprocess
from typing import Any

import yaml

from cluster.tool import ClusterError, binaries, layout
from support.checkout import ROOT
from support.leftout import leave_out

CHART = ROOT / "charts" / "llmqueue"


def helm(*, oldest: bool = False) -> str:
    """The path of the one that the cluster's tool fetches: another says the same in other words. The
    test that asks is left out where it can't be had."""
    try:
        binaries.provide_tools()
        return str(binaries.oldest_helm() if oldest else layout.BIN / "helm")
    except ClusterError as exc:
        leave_out(exc)


def template(
    *options: str, release: str = "test", namespace: str = "team", oldest: bool = False
) -> subprocess.CompletedProcess[str]:
    """`helm template`, whatever it says; for the oldest Kubernetes that is supported."""
    command = [helm(oldest=oldest), "template", release, str(CHART), "--namespace", namespace]
    command += ["--kube-version=1.33.0", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def rendered(*options: str, release: str = "test", namespace: str = "team") -> list[dict[str, Any]]:
    """The objects, in the order in which Helm has them."""
    text = _rendering(options, release, namespace)
    return [each for each in yaml.load_all(text, Loader=_Strict) if each]


class _Strict(yaml.CSafeLoader):
    """Takes no key twice, as kustomize: Helm and PyYAML would let the last one win."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key) for key, _ in node.value]
        twice = {key for key in keys if keys.count(key) > 1}
        assert not twice, f"{twice} stand twice in one mapping{node.start_mark}"
        return super().construct_mapping(node, deep)


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
