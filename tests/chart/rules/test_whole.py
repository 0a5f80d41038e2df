"""Every alert has all that belongs to it, and rests on what exists."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.checkout import ROOT
from support.dashboards import queries
from support.rendering import CHART, rules

ALERTS = sorted(path.stem for path in (CHART / "rules").glob("*.yaml"))
RUNBOOKS = ROOT / "docs" / "runbooks"
CASES = Path(__file__).parent / "alerts"
HOWTO = ROOT / "docs" / "how-to" / "monitoring.md"
_METRIC = re.compile(r"\bllmqueue_\w+")
_ROW = re.compile(r"^\| \[(\w+)\]\(\.\./runbooks/(\w+)\.md\) \| (\w+) \| (\w*) \|", re.MULTILINE)


def values() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
    return found


def rendered_alerts(*options: str) -> dict[str, dict[str, Any]]:
    return {rule["alert"]: rule for group in rules(*options)["groups"] for rule in group["rules"]}


def known_metrics() -> set[str]:
    """All series' names: of a histogram those of its parts."""
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    listed = re.findall(r"^\| `(llmqueue_\w+)` \| (\w+) \|", page, re.MULTILINE)
    return {
        name + part
        for name, kind in listed
        for part in (("_bucket", "_sum", "_count") if kind == "histogram" else ("",))
    }


def test_rules_values_cases_and_runbooks_are_of_the_same_alerts() -> None:
    assert len(ALERTS) > 20
    assert sorted(values()["rules"]["alerts"]) == ALERTS
    assert sorted(path.stem for path in CASES.glob("*.yaml")) == ALERTS
    assert sorted(path.stem for path in RUNBOOKS.glob("LLMQueue*.md")) == ALERTS
    assert sorted(rendered_alerts()) == ALERTS


@pytest.mark.parametrize("alert", ALERTS)
def test_a_runbook_has_its_parts(alert: str) -> None:
    text = (RUNBOOKS / f"{alert}.md").read_text()
    assert text.startswith(f"# {alert}\n")
    parts = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert parts == ["Meaning", "Impact", "Diagnosis", "Mitigation"]


@pytest.mark.parametrize("alert", ALERTS)
def test_a_runbook_s_commands_exist(alert: str) -> None:
    reference = (ROOT / "docs" / "reference" / "cli.md").read_text()
    known = set(re.findall(r"^#+ `llmqueue (.+)`$", reference, re.MULTILINE))
    text = (RUNBOOKS / f"{alert}.md").read_text()
    used = re.findall(r"(?:^\$ |`)llmqueue ([a-z]+(?: list)?)", text, re.MULTILINE)
    assert set(used) <= known


def test_the_index_lists_all_runbooks() -> None:
    text = (RUNBOOKS / "README.md").read_text()
    assert re.findall(r"\]\((LLMQueue\w+)\.md\)", text) == ALERTS


def test_the_guide_s_table_is_that_of_the_values() -> None:
    given = values()["rules"]["alerts"]
    shown = {
        alert: (severity, after) for alert, _, severity, after in _ROW.findall(HOWTO.read_text())
    }
    assert shown == {
        alert: (block["severity"], "" if block["for"] == "0s" else block["for"])
        for alert, block in given.items()
    }


@pytest.mark.parametrize("alert", ALERTS)
def test_its_metrics_exist(alert: str) -> None:
    named = set(_METRIC.findall((CHART / "rules" / f"{alert}.yaml").read_text()))
    assert named - known_metrics() == set()


def test_the_dashboards_metrics_exist() -> None:
    named = {m for q in queries({}) for m in _METRIC.findall(q.expr)}
    assert len(named) > 40
    assert named - known_metrics() == set()


def changed(name: str, value: object) -> object:
    """Another value of this kind."""
    if isinstance(value, bool):
        return value
    if name == "severity":
        return "warning" if value == "critical" else "critical"
    if isinstance(value, str):
        return "7m" if name == "for" else "33m"
    return 0.77 if name == "share" else 777


def test_severity_for_and_thresholds_are_the_values_to_change(tmp_path: Path) -> None:
    wanted = {
        alert: {name: changed(name, value) for name, value in block.items()}
        for alert, block in values()["rules"]["alerts"].items()
    }
    (tmp_path / "values.yaml").write_text(yaml.safe_dump({"rules": {"alerts": wanted}}))
    found = rendered_alerts(f"--values={tmp_path / 'values.yaml'}")
    for alert, block in wanted.items():
        assert found[alert]["labels"]["severity"] == block.pop("severity")
        assert found[alert]["for"] == block.pop("for")
        assert block.pop("enabled")
        missing = [each for each in block.values() if str(each) not in found[alert]["expr"]]
        assert (alert, missing) == (alert, [])


def test_one_can_be_switched_off() -> None:
    found = rendered_alerts("--set=rules.alerts.LLMQueueNoLeader.enabled=false")
    assert sorted(found) == [alert for alert in ALERTS if alert != "LLMQueueNoLeader"]


@pytest.mark.parametrize(
    ("scope", "matcher"), [("Namespace", 'namespace="team"'), ("Cluster", 'namespace!=""')]
)
def test_a_release_tells_of_the_queues_that_it_serves(scope: str, matcher: str) -> None:
    expr = rendered_alerts(f"--set=scope={scope}")["LLMQueueQuotaExhausted"]["expr"]
    assert f"llmqueue_credential_pauses{{{matcher}, " in expr


def test_runbooks_are_found_where_they_are_published() -> None:
    found = rendered_alerts("--set=rules.runbookBaseUrl=https://docs.example/llmqueue/")
    where = found["LLMQueueNoLeader"]["annotations"]["runbook_url"]
    assert where == "https://docs.example/llmqueue/LLMQueueNoLeader.md"
