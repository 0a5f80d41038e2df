"""Each of the chart's examples of values installs on a real cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.bench import Kube, Space
from cluster.bench.release import NO_CRD, Release, works
from support.rendering import CHART

# That of the whole cluster would serve the other tests' LLMQueues too: see test_chart.py.
CI = [each for each in sorted((CHART / "ci").glob("*-values.yaml")) if "cluster" not in each.name]


@pytest.mark.parametrize(
    "file", [f for f in CI if "cluster-scope" not in f.name], ids=lambda f: f.stem
)
async def test_each_example_of_values_installs(
    kube: Kube, file: Path, request: pytest.FixtureRequest
) -> None:
    """In a namespace that has what the files name: Secrets, and a Redis called valkey."""
    if file.name.startswith("monitoring"):
        request.getfixturevalue("prometheus_crds")
    async with Space(kube, "chart") as space:
        await _secrets(space)
        release = Release(space, files=(file,))
        await release.install(NO_CRD)
        assert "WRONG" not in await release.test()


async def _secrets(space: Space) -> None:
    for name in ("valkey", "valkey-batch"):
        await space.kube.apply(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": name, "namespace": space.name},
                "stringData": {"url": space.redis_url, "worker-secret-name": name},
            }
        )


async def test_one_secret_serves_operator_and_workers(kube: Kube) -> None:
    """Of a Redis with a password, as docs/how-to/kubernetes.md makes it: it names itself."""
    async with Space(kube, "chart") as space:
        # The server's default user takes any password.
        space.redis_url = space.redis_url.replace("://", "://default:hush@")
        await _secrets(space)
        release = Release(space, files=(CHART / "ci" / "secrets-values.yaml",))
        await release.install(NO_CRD)
        assert "note" not in await release.test()
        await works(space)
        assert "hush" not in await kube.run(
            "-n", space.name, "get", "pods,deployments", "-o", "yaml"
        )
