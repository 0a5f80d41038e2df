"""Writes one JSON file a dashboard."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from grafana_foundation_sdk.builders.dashboard import Dashboard
from grafana_foundation_sdk.cog.encoder import JSONEncoder

from tools.dashboards.money import money
from tools.dashboards.operator_board import operator_board
from tools.dashboards.overview import overview
from tools.dashboards.queue import queue

FOLDER = Path("charts/llmqueue/dashboards")
BOARDS: dict[str, Callable[[], Dashboard]] = {
    "overview": overview,
    "queue": queue,
    "money": money,
    "operator": operator_board,
}


def text(board: Callable[[], Dashboard]) -> str:
    """The file, the same each time."""
    made = board().build()
    for number, panel in enumerate(made.panels or (), start=1):
        panel.id_val = number  # as Grafana would number them, anew at each start
    return json.dumps(made, cls=JSONEncoder, sort_keys=True, indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, board in BOARDS.items():
        (FOLDER / f"{name}.json").write_text(text(board), encoding="utf-8")


if __name__ == "__main__":
    main()
