"""The dashboards: as their source makes them, whole, and valid to Prometheus and Kubernetes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from tools.dashboards.__main__ import BOARDS, main

from support.checkout import ROOT
from support.dashboards import boards, panels, queries
from support.debianprograms import debian_program
from support.rendering import rendered
from support.rulecases import checked

FOLDER = Path("charts/llmqueue/dashboards")
SHOWN = [(name, panel) for name, board in boards().items() for panel in panels(board)]
IDS = [f"{name}-{panel['title']}" for name, panel in SHOWN]


def test_the_committed_files_are_current(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    main()
    made = {path.name: path.read_text() for path in (tmp_path / FOLDER).iterdir()}
    kept = {path.name: path.read_text() for path in (ROOT / FOLDER).iterdir()}
    assert kept == made, "run `make docs` and commit what it writes"
    assert set(boards()) == set(BOARDS)


@pytest.mark.parametrize(("board", "panel"), SHOWN, ids=IDS)
def test_a_panel_explains_itself(board: str, panel: dict[str, Any]) -> None:
    assert panel["description"].endswith(".")
    assert panel["datasource"]["uid"] == "${datasource}"
    columns = panel.get("fieldConfig", {}).get("overrides")
    assert columns if panel["type"] == "table" else panel["fieldConfig"]["defaults"]["unit"]
    if panel["type"] in ("timeseries", "state-timeline"):
        assert all(target["legendFormat"] for target in panel["targets"])


@pytest.mark.parametrize("name", BOARDS)
def test_a_board_fills_its_rows_and_offers_its_variables(name: str) -> None:
    board = boards()[name]
    offered = {variable["name"] for variable in board["templating"]["list"]}
    assert {"datasource", "namespace"} <= offered
    used = set(
        re.findall(
            r"\$(?!__)(\w+)", " ".join(t["expr"] for p in panels(board) for t in p["targets"])
        )
    )
    assert used <= offered
    covered: dict[int, int] = {}
    for panel in board["panels"]:
        place = panel["gridPos"]
        covered[place["y"]] = covered.get(place["y"], 0) + place["w"]
    assert set(covered.values()) == {24}
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def test_rates_are_over_four_scrapes() -> None:
    """Whatever Grafana's data source says of the interval between them."""
    values = yaml.safe_load((ROOT / "charts/llmqueue/values.yaml").read_text())["metrics"]
    intervals = {values[each]["interval"] for each in ("operatorMonitor", "podMonitor")}
    targets = [target for _, panel in SHOWN for target in panel["targets"]]
    assert {target.get("interval") for target in targets} == intervals


def test_prometheus_can_read_all_queries(tmp_path: Path) -> None:
    found = queries({"namespace": "team", "queue": "summaries"})
    assert len(found) > 80
    assert not [each for each in found if "$" in each.expr]
    rules = [{"record": f"q:{i}", "expr": each.expr} for i, each in enumerate(found)]
    document = yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]})
    good, said = checked(debian_program("promtool"), document, tmp_path)
    assert good, said


def test_each_is_a_config_map_that_the_sidecar_finds() -> None:
    objects = rendered(
        "--set=dashboards.enabled=true",
        "--set=dashboards.folder=LLM",
        "--set=dashboards.annotations.team=search",
    )
    maps = {
        o["metadata"]["name"]: o
        for o in objects
        if o["metadata"]["labels"].get("grafana_dashboard") == "1"
    }
    assert set(maps) == {f"test-llmqueue-dashboard-{name}" for name in BOARDS}
    for name in BOARDS:
        found = maps[f"test-llmqueue-dashboard-{name}"]
        assert found["metadata"]["annotations"] == {"grafana_folder": "LLM", "team": "search"}
        text = (ROOT / FOLDER / f"{name}.json").read_text()
        assert found["data"] == {f"llmqueue-{name}.json": text}


def test_none_by_default() -> None:
    kinds = {each["kind"] for each in rendered()}
    assert "PrometheusRule" not in kinds
    assert not [o for o in rendered() if "dashboard" in o["metadata"]["name"]]
