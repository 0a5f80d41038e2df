"""Cases of alerts, and promtool's verdict on them.

A file is a list of cases:

    name      what happens
    series    series → values in promtool's notation; one every 30 s
    firing    moments at which the alert of the file fires
    quiet     moments at which it does not
    summary   what it says at the first moment of `firing`
    count     how many alerts of it fire then; 1 by default

Labels that a series leaves out are those of the queue team/summaries, and for what the operator
says of itself those of its scrape.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import yaml

NAMESPACE, QUEUE, JOB = "team", "summaries", "test-llmqueue-operator"
_OF_THE_OPERATOR = re.compile(r"^(up|llmqueue_store_(problem|up|warnings)|llmqueue_operator_\w+)\b")
_INTERVAL = "30s"


def cases(file: Path) -> list[dict[str, Any]]:
    """As they are written: to YAML, 0x40 would be a number in hexadecimal."""
    found: list[dict[str, Any]] = yaml.load(file.read_text(), Loader=yaml.BaseLoader)
    return found


def labelled(series: str) -> str:
    """With the labels that every scrape brings."""
    own = [("namespace", NAMESPACE)]
    own.append(("job", JOB) if _OF_THE_OPERATOR.match(series) else ("queue", QUEUE))
    name, _, labels = series.partition("{")
    given = labels.rstrip("}")
    added = [f'{key}="{value}"' for key, value in own if not re.search(rf"\b{key}=", given)]
    return f"{name}{{{', '.join([each for each in [given] if each] + added)}}}"


def promtool_test(case: dict[str, Any], alert: str | None) -> dict[str, Any]:
    """One case as promtool reads it. `alert` None: no alert at all may fire."""
    firing = 'alertstate="firing"'
    which = firing if alert is None else f'alertname="{alert}", {firing}'
    expected = [(when, float(case.get("count", 1))) for when in case.get("firing", ())]
    expected += [(when, 0) for when in case.get("quiet", ())]
    assert expected, f"{case['name']}: nothing is expected"
    return {
        "name": case["name"],
        "interval": _INTERVAL,
        "input_series": [
            {"series": labelled(series), "values": values}
            for series, values in case["series"].items()
        ],
        "promql_expr_test": [
            {
                "expr": f"count(ALERTS{{{which}}}) or vector(0)",
                "eval_time": when,
                "exp_samples": [{"labels": "{}", "value": count}],
            }
            for when, count in expected
        ],
    }


def verdict(
    promtool: str, rules: dict[str, Any], tests: list[dict[str, Any]], folder: Path
) -> tuple[bool, str]:
    """Whether all hold, and what promtool said."""
    (folder / "rules.yaml").write_text(yaml.safe_dump(rules))
    document = {"rule_files": ["rules.yaml"], "evaluation_interval": _INTERVAL, "tests": tests}
    (folder / "tests.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
    done = subprocess.run(
        [promtool, "test", "rules", "tests.yaml"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode == 0, done.stdout + done.stderr


def summaries(
    promtool: str, rules: dict[str, Any], alert: str, cases: list[dict[str, Any]], folder: Path
) -> list[str]:
    """What the alert says at the first moment at which it fires in each case: promtool shows it
    where no alert is expected."""
    tests: list[dict[str, Any]] = []
    for case in cases:
        test = promtool_test(case, alert)
        del test["promql_expr_test"]
        test["alert_rule_test"] = [{"eval_time": case["firing"][0], "alertname": alert}]
        tests.append(test)
    _, said = verdict(promtool, rules, tests, folder)
    return re.findall(r'Annotations:\{.*summary="((?:[^"\\]|\\.)*)"', said)


def only(alert: str, rules: dict[str, Any]) -> dict[str, Any]:
    """The alert alone: promtool evaluates all that it is given."""
    found = [rule for group in rules["groups"] for rule in group["rules"]]
    return {"groups": [{"name": "one", "rules": [r for r in found if r["alert"] == alert]}]}
