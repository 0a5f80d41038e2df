"""What the real Skaffold renders is what the other tests take for it. Its build takes minutes."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.tool import skaffold
from support.checkout import ROOT
from support.rendering import helm, rendered
from support.skaffolding import release, values

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]

# Skaffold knows Helm 3, which takes a program as post-renderer; Helm 4 wants a plugin.
AS_HELM_3 = """#!/bin/bash
set -eu -o pipefail
[ "$*" != "version --client" ] || { echo 'version.BuildInfo{Version:"v3.18.0"}'; exit; }
given=(); renderer=cat
while (($#)); do
  case $1 in --post-renderer) renderer=$2; shift 2;; *) given+=("$1"); shift;; esac
done
"$HELM" "${given[@]}" | $renderer
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "helm"
    program.write_text(AS_HELM_3)
    program.chmod(0o755)
    settings = tmp_path / ".skaffold" / "config"  # it would tell its maker of its use
    settings.parent.mkdir()
    settings.write_text("global: {collect-metrics: false}\n")
    return {
        **os.environ,
        "HELM": helm(),
        "HOME": str(tmp_path),
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "SKAFFOLD_INTERACTIVE": "false",
        "SKAFFOLD_UPDATE_CHECK": "false",
    }


@pytest.mark.parametrize("profile", [None, "dev"])
def test_the_real_one_renders_the_same(environment: dict[str, str], profile: str | None) -> None:
    chosen = [] if profile is None else ["--profile", profile]
    done = subprocess.run(
        [str(skaffold.program()), "render", "--offline=true", "--digest-source=tag", *chosen,
         "--default-repo=registry.example/team"],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr

    images = {
        f"llmqueue-{each}": f"registry.example/team/llmqueue-{each}:latest"
        for each in ("operator", "worker")
    }
    found = release(profile)
    expected = rendered(*values(found, images), release=found["name"], namespace=found["namespace"])
    theirs = [each for each in yaml.safe_load_all(done.stdout) if each]
    assert in_order(theirs) == in_order(expected)


def in_order(objects: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(each, sort_keys=True) for each in objects)
