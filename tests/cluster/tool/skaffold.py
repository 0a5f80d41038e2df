"""Skaffold, from the Go module proxy: its schema in seconds, the program in minutes.

The program is large: it takes a dozen minutes of one processor, and drives Helm 3 only.
"""

import json
import re
from pathlib import Path

from cluster.tool import binaries, layout
from cluster.tool.command import run, say
from cluster.tool.errors import CommandFailed, Incapable

_MODULE = layout.DEFINITIONS / "skaffold"
_NAME = "github.com/GoogleContainerTools/skaffold/v2"


def schema(version: str) -> Path:
    """The JSON schema of skaffold.yaml with `apiVersion: skaffold/<version>`.

    Raises Incapable where it can't be had.
    """
    try:
        said = run(binaries.go(), "mod", "download", "-json", _NAME, folder=_MODULE)
    except CommandFailed as exc:
        raise Incapable(f"Skaffold's sources can't be fetched: {exc}") from exc
    return Path(json.loads(said)["Dir"], "docs-v2", "content", "en", "schemas", f"{version}.json")


def program() -> Path:
    """The built program, kept in `.cluster/bin`. Raises Incapable where it can't be had."""
    target = layout.BIN / "skaffold"
    binaries.renew("skaffold", [target], lambda: _build(target), sources=[_MODULE / "go.sum"])
    return target


def _build(target: Path) -> None:
    say("Building Skaffold: six to ten minutes the first time, seconds with a warm cache")
    (version,) = re.findall(rf"{_NAME} (v\S+)", (_MODULE / "go.mod").read_text())
    known = f"-X {_NAME}/pkg/skaffold/version.version={version}"
    binaries.compiled(_MODULE, target, f"{_NAME}/cmd/skaffold", flags=known)
