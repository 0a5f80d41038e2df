"""What the dashboards ask Prometheus, with their variables filled in."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from support.checkout import ROOT

FOLDER = ROOT / "charts" / "llmqueue" / "dashboards"
DEFAULTS = {
    "namespace": ".*",
    "queue": ".*",
    "job": ".+-operator",
    "__rate_interval": "1m",
    "__range": "10m",
}
"""Grafana fills in the last two by itself."""
_VARIABLE = re.compile(r"\$(\w+)")


@dataclass(frozen=True, slots=True)
class Query:
    dashboard: str
    """Its file, without .json."""
    panel: str
    expr: str
    legend: str = ""


def boards() -> dict[str, dict[str, Any]]:
    """Name → document."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}


def panels(board: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Those that show something, in their order."""
    for panel in board["panels"]:
        if panel["type"] != "row":
            yield panel
        yield from panel.get("panels") or ()


def filled(text: str, variables: Mapping[str, str]) -> str:
    """With the values of variables. Raises KeyError for one that nobody knows."""
    values = {**DEFAULTS, **variables}
    return _VARIABLE.sub(lambda found: values[found[1]], text)


def queries(variables: Mapping[str, str]) -> list[Query]:
    """All of all panels. `variables` as the dashboards name them, as `namespace` and `queue`; the
    others match everything."""
    return [
        Query(
            name, panel["title"], filled(target["expr"], variables), target.get("legendFormat", "")
        )
        for name, board in boards().items()
        for panel in panels(board)
        for target in panel["targets"]
    ]
