"""Each alert fires in its trouble, not in others that look like it, and ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.debianprograms import debian_program
from support.rendering import CHART, rules
from support.rulecases import cases, handed_over, only, promtool_test, summaries, verdict

FOLDER = Path(__file__).parent / "alerts"
ALERTS = sorted(path.stem for path in (CHART / "rules").glob("*.yaml"))


def cases_of(alert: str) -> list[dict[str, Any]]:
    return cases(FOLDER / f"{alert}.yaml")


@pytest.fixture(scope="module")
def by_default() -> dict[str, Any]:
    return rules()


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert(alert: str, by_default: dict[str, Any], tmp_path: Path) -> None:
    tests = [promtool_test(case, alert) for case in cases_of(alert)]
    good, said = verdict(debian_program("promtool"), only(alert, by_default), tests, tmp_path)
    assert good, said


@pytest.mark.parametrize("alert", ALERTS)
def test_it_fires_stays_quiet_and_ends(alert: str) -> None:
    """What the cases of every alert must hold, whatever else they do."""
    all_cases = cases_of(alert)
    assert any(case.get("firing") for case in all_cases)
    assert any(not case.get("firing") for case in all_cases)
    both = [case for case in all_cases if case.get("firing") and case.get("quiet")]
    assert any(_seconds(c["quiet"][-1]) > _seconds(c["firing"][-1]) for c in both), "none clears"


OF_GAUGES = [a for a in ALERTS if "last_over_time" in (CHART / "rules" / f"{a}.yaml").read_text()]


@pytest.mark.parametrize("alert", OF_GAUGES)
def test_a_change_of_leader_does_not_end_it(
    alert: str, by_default: dict[str, Any], tmp_path: Path
) -> None:
    """Nor does it start anew: `for` would have to pass again."""
    case = next(c for c in cases_of(alert) if len(c.get("firing", ())) > 1)
    at = int(_seconds(case["firing"][-1]) / 30)
    moments = [f"{30 * (at - back)}s" for back in (2, 1, 0)]
    series = handed_over(case["series"], at - 1)
    test = promtool_test({"name": case["name"], "series": series, "firing": moments}, alert)
    good, said = verdict(debian_program("promtool"), only(alert, by_default), [test], tmp_path)
    assert good, said


@pytest.mark.parametrize("alert", ALERTS)
def test_it_says_what_is_wrong_and_where(
    alert: str, by_default: dict[str, Any], tmp_path: Path
) -> None:
    speaking = [case for case in cases_of(alert) if "summary" in case]
    assert speaking
    one = only(alert, by_default)
    found = summaries(debian_program("promtool"), one, alert, speaking, tmp_path)
    assert found == [case["summary"] for case in speaking]


def _seconds(moment: str) -> float:
    minutes, _, seconds = moment.partition("m")
    return 60 * float(minutes) + float(seconds.rstrip("s") or 0)
