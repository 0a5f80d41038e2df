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


def samples(values: str) -> list[str]:
    """promtool's notation, one by one: `_` is none, `stale` the end of a series."""
    found: list[str] = []
    for part in values.split():
        first, _, times = part.partition("x")
        number = re.fullmatch(r"(-?[\d.e]+)([+-][\d.e]+)?", first)
        if not times or number is None:
            found += [first] * int(times or 1)
            continue
        start, step = float(number[1]), float(number[2] or 0)
        found += [f"{start + step * index:g}" for index in range(int(times) + 1)]
    return found


def handed_over(series: dict[str, str], at: int) -> dict[str, str]:
    """The operator's series end at this sample, and go on two samples later in another pod."""
    found: dict[str, str] = {}
    for name, values in series.items():
        if name.startswith("llmqueue_worker_"):
            found[name] = values
            continue
        bare, _, labels = name.partition("{")
        labels = f", {labels.rstrip('}')}" if labels else ""
        each = samples(values)
        found[f'{bare}{{pod="before"{labels}}}'] = " ".join([*each[:at], "stale"])
        found[f'{bare}{{pod="after"{labels}}}'] = " ".join([f"_x{at + 2}", *each[at + 2 :]])
    return found


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


def checked(promtool: str, document: str, folder: Path) -> tuple[bool, str]:
    """Whether promtool can read these rules, and what it said."""
    (folder / "rules.yaml").write_text(document)
    command = [promtool, "check", "rules", "rules.yaml"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode == 0, done.stdout + done.stderr
