"""The example of Alertmanager's configuration, with Alertmanager's own tool."""

from __future__ import annotations

import re
import subprocess
from typing import Any

import pytest
import yaml

from support.checkout import ROOT
from support.debianprograms import debian_program
from support.rendering import CHART

EXAMPLE = ROOT / "examples" / "monitoring" / "alertmanager.yaml"
ALERTS: dict[str, dict[str, Any]] = yaml.safe_load((CHART / "values.yaml").read_text())["rules"][
    "alerts"
]
_MATCHER = re.compile(r"(\w+) (=~|=) \"?([^\"]+)\"?")
INHIBITIONS = yaml.safe_load(EXAMPLE.read_text())["inhibit_rules"]


def amtool(*arguments: str) -> str:
    done = subprocess.run(
        [debian_program("amtool"), *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def test_alertmanager_can_read_it() -> None:
    assert "SUCCESS" in amtool("check-config", str(EXAMPLE))


@pytest.mark.parametrize(
    ("severity", "receiver"), [("warning", "chat"), ("error", "on-call"), ("critical", "pager")]
)
def test_severity_decides_who_is_told(severity: str, receiver: str) -> None:
    names = [name for name, block in ALERTS.items() if block["severity"] == severity]
    assert names
    told = amtool(
        *("config", "routes", "test", f"--config.file={EXAMPLE}"),
        *(f"alertname={names[0]}", f"severity={severity}", "namespace=team", "queue=summaries"),
    )
    assert told == receiver


def chosen(matchers: list[str]) -> set[str]:
    """The alerts of the chart that they mean."""
    (matcher,) = matchers
    found = _MATCHER.fullmatch(matcher)
    assert found is not None
    assert found[1] == "alertname"
    pattern = found[3] if found[2] == "=~" else re.escape(found[3])
    return {name for name in ALERTS if re.fullmatch(pattern, name)}


@pytest.mark.parametrize("rule", INHIBITIONS, ids=lambda rule: rule["source_matchers"][0][:60])
def test_a_cause_silences_others_that_exist(rule: dict[str, Any]) -> None:
    causes, silenced = chosen(rule["source_matchers"]), chosen(rule["target_matchers"])
    assert causes
    assert silenced
    assert not causes & silenced
    for matcher in (*rule["source_matchers"], *rule["target_matchers"]):
        for name in re.findall(r"(?<=[(|])([A-Z]\w+)(?=[|)])", matcher):
            assert any(name in alert for alert in ALERTS), name


def test_no_alert_is_silenced_whose_cause_may_be_another() -> None:
    """What a person must hear of in any case."""
    silenced = {name for rule in INHIBITIONS for name in chosen(rule["target_matchers"])}
    loud = {name for name, block in ALERTS.items() if block["severity"] == "critical"}
    assert not silenced & loud
