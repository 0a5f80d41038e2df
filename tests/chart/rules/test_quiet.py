"""What happens every day fires nothing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.debianprograms import debian_program
from support.rendering import rules
from support.rulecases import promtool_test, verdict

# As text: to YAML, 0x40 would be a number in hexadecimal.
EVERY_DAY = yaml.load(Path(__file__).with_name("quiet.yaml").read_text(), Loader=yaml.BaseLoader)
_LINE = re.compile(r"(?P<first>[\d.]+)(?:\+(?P<step>[\d.]+))?")
_GAP = 2


def of_the_worker(series: str) -> bool:
    return series.startswith(("llmqueue_worker_", "up{"))


def lines(case: dict[str, Any]) -> dict[str, str]:
    """Series → values in promtool's notation."""
    lasts, at = int(case["lasts"]), int(case.get("handover", 0))
    found: dict[str, str] = {}
    for series, values in {**EVERY_DAY["always"], **case["series"]}.items():
        line = _LINE.fullmatch(values)
        if not values:
            continue
        if line is None:
            found[series] = values
            continue
        first, step = float(line["first"]), float(line["step"] or 0)
        if not at or of_the_worker(series):
            found[series] = f"{first}+{step}x{lasts}"
            continue
        name, _, labels = series.partition("{")
        others = [each for each in re.findall(r'\w+="[^"]*"', labels) if each[:4] != "pod="]
        before, after = (f"{name}{{{', '.join([*others, pod])}}}" for pod in ('pod="a"', 'pod="b"'))
        found[before] = f"{first}+{step}x{at} stale"
        later = first + step * (at + _GAP)
        found.setdefault(after, f"_x{at + _GAP} {later}+{step}x{lasts - at - _GAP}")
    return found


@pytest.fixture(scope="module")
def by_default() -> dict[str, Any]:
    return rules()


@pytest.mark.parametrize("case", EVERY_DAY["cases"], ids=lambda case: case["name"])
def test_nothing_fires(case: dict[str, Any], by_default: dict[str, Any], tmp_path: Path) -> None:
    moments = [f"{half_minutes * 30}s" for half_minutes in range(int(case["lasts"]))]
    test = promtool_test({**case, "series": lines(case), "quiet": moments}, None)
    good, said = verdict(debian_program("promtool"), by_default, [test], tmp_path)
    assert good, said


def test_the_same_queue_in_trouble_is_told(by_default: dict[str, Any], tmp_path: Path) -> None:
    """Else the cases above would prove nothing."""
    case = {"name": "trouble", "lasts": "60", "series": {"llmqueue_planned_age_seconds": "0+30"}}
    test = promtool_test({**case, "series": lines(case), "firing": ["20m"]}, None)
    good, said = verdict(debian_program("promtool"), by_default, [test], tmp_path)
    assert good, said
