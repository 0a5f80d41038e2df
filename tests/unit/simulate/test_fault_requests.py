"""How faults are asked for: in requests, and by scripts."""

from __future__ import annotations

import random
from typing import Any

import pytest

from llmqueue_cli.simulate.catalogue import BODY_FAULTS, ERROR_ANSWERS, FAULTS, WITHOUT_STREAM
from llmqueue_cli.simulate.fault import BadFault, Fault, directives, fault_of
from llmqueue_cli.simulate.misbehave.carry_out import CARRIED_OUT
from llmqueue_cli.simulate.misbehave.errors import inner_error, regain_date, retry_after_headers
from llmqueue_cli.simulate.schedule import LISTENER_FAULT, Rule, Schedule, parse_script


def test_every_fault_is_carried_out() -> None:
    assert {*CARRIED_OUT, LISTENER_FAULT} == FAULTS
    assert set(WITHOUT_STREAM.values()) <= set(CARRIED_OUT)


@pytest.mark.parametrize(
    ("header", "body", "found"),
    [
        pytest.param("", b'{"a": "hello"}', {}, id="nothing"),
        pytest.param("cut_body", b"", {"fault": "cut_body"}, id="header"),
        pytest.param(
            "rate429 retry_after=5",
            b"",
            {"fault": "rate429", "retry_after": "5"},
            id="header with parameters",
        ),
        pytest.param(
            "",
            b'{"content": "do [[sim:fault=529 times=3]] it"}',
            {"fault": "529", "times": "3"},
            id="marker",
        ),
        pytest.param(
            "",
            b"[[sim:latency=2.5]] and [[sim:output=100, input=7]]",
            {"latency": "2.5", "output": "100", "input": "7"},
            id="several markers",
        ),
        pytest.param(
            "500",
            b"[[sim:fault=502]]",
            {"fault": "502"},
            id="a marker wins over the header",
        ),
        pytest.param("", b"[[sim:fault=502", {}, id="not closed"),
    ],
)
def test_what_a_request_asks_for(header: str, body: bytes, found: dict[str, str]) -> None:
    assert directives({"x-sim-fault": header}, body) == found


def test_an_unknown_fault_is_an_error_that_names_the_known_ones() -> None:
    with pytest.raises(BadFault, match=r"unknown fault 'cut_bdy'; known: .*cut_body"):
        fault_of({"fault": "cut_bdy"})
    assert fault_of({"latency": "3"}) is None


@pytest.mark.parametrize("text", ["x", "-1", "nan", "inf", ""])
def test_a_parameter_that_is_no_number_is_an_error(text: str) -> None:
    with pytest.raises(BadFault, match="after="):
        Fault("502", {"after": text}).number("after", 0)


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("1", True), ("no", False), ("", True)]
)
def test_flags(text: str, value: bool) -> None:
    assert Fault("504", {"billed": text}).flag("billed", True) is value


def test_a_flag_that_is_neither_is_an_error() -> None:
    with pytest.raises(BadFault, match="billed='maybe'"):
        Fault("504", {"billed": "maybe"}).flag("billed", True)


NOW = 1_796_018_422.25  # 2026-11-30 06:00:22.25 UTC


@pytest.mark.parametrize(
    ("params", "headers"),
    [
        pytest.param({}, [("retry-after", "1")], id="default"),
        pytest.param({"retry_after": "none"}, [], id="none"),
        pytest.param({"retry_after": "empty"}, [("retry-after", "")], id="empty"),
        pytest.param({"retry_after": "-5"}, [("retry-after", "-5")], id="negative"),
        pytest.param({"retry_after": "nan"}, [("retry-after", "nan")], id="nan"),
        pytest.param({"retry_after": "inf"}, [("retry-after", "inf")], id="inf"),
        pytest.param({"retry_after": "1m30s"}, [("retry-after", "1m30s")], id="Go duration"),
        pytest.param({"retry_after_ms": "1500"}, [("retry-after-ms", "1500")], id="ms"),
        pytest.param(
            {"x_ms_retry_after_ms": "1500", "retry_after": "2"},
            [("x-ms-retry-after-ms", "1500"), ("retry-after", "2")],
            id="both",
        ),
        pytest.param(
            {"retry_after": "date+20"},
            [("retry-after", "Mon, 30 Nov 2026 06:00:43 GMT")],
            id="HTTP date, rounded up",
        ),
        pytest.param(
            {"retry_after": "date-60"},
            [("retry-after", "Mon, 30 Nov 2026 05:59:23 GMT")],
            id="HTTP date that has passed",
        ),
    ],
)
def test_every_form_of_retry_after(params: dict[str, str], headers: list[tuple[str, str]]) -> None:
    assert retry_after_headers(Fault("rate429", params), "1", wall=NOW) == headers


def test_access_is_regained_on_a_given_day_or_with_the_next_month() -> None:
    assert regain_date(Fault("spend_limit"), wall=NOW) == "2026-12-01 at 00:00 UTC"
    fault = Fault("spend_limit", {"regain": "2027-02-03"})
    assert regain_date(fault, wall=NOW) == "2027-02-03 at 00:00 UTC"


def test_the_code_of_an_inner_error_must_be_known() -> None:
    assert inner_error(Fault("error_in_200")) is ERROR_ANSWERS["529"]
    assert inner_error(Fault("error_in_200", {"code": "rate429"})) is ERROR_ANSWERS["rate429"]
    with pytest.raises(BadFault, match="code='529x'"):
        inner_error(Fault("error_in_200", {"code": "529x"}))


def _names(schedule: Schedule, *times: float) -> list[str | None]:
    return [fault.name if (fault := schedule.pick(at)) else None for at in times]


def test_rules_apply_from_and_until_their_times() -> None:
    rules = (Rule(Fault("500"), 10, 20), Rule(Fault("529"), 15, 30))
    schedule = Schedule(rules, started=100.0, rng=random.Random(0))
    assert _names(schedule, 109.9, 110, 119.9, 120, 129.9, 130) == [
        None,
        "500",
        "500",
        "529",
        "529",
        None,
    ]


def test_a_counted_rule_befalls_that_many_calls() -> None:
    schedule = Schedule((Rule(Fault("500"), count=2),), started=0.0, rng=random.Random(0))
    assert _names(schedule, 1, 2, 3) == ["500", "500", None]


def test_a_probable_rule_befalls_about_its_share() -> None:
    rules = (Rule(Fault("500"), probability=0.25), Rule(Fault("529"), probability=0.0))
    schedule = Schedule(rules, started=0.0, rng=random.Random(7))
    names = _names(schedule, *range(2000))
    assert 400 < names.count("500") < 600
    assert names.count("529") == 0


def test_the_listener_fault_befalls_no_call() -> None:
    rules = (Rule(Fault(LISTENER_FAULT), 5, 8), Rule(Fault(LISTENER_FAULT), 1, 2))
    schedule = Schedule(rules, started=100.0, rng=random.Random(0))
    assert _names(schedule, 106) == [None]
    assert schedule.closed_spans() == [(101.0, 102.0), (105.0, 108.0)]


def test_a_script_is_a_list_of_rules_or_a_single_one() -> None:
    text = '[{"from_s": 40, "to_s": 55, "fault": "rate429", "probability": 0.5, "retry_after": 2}]'
    assert parse_script(text) == (Rule(Fault("rate429", {"retry_after": "2"}), 40, 55, 0.5),)
    assert parse_script('{"fault": "504", "billed": false, "count": 3}') == (
        Rule(Fault("504", {"billed": "false"}), count=3),
    )
    assert parse_script("[]") == ()


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        pytest.param("[", "not JSON", id="not JSON"),
        pytest.param("[3]", "rule 1 is no object", id="no object"),
        pytest.param('[{"fault": "500"}, {}]', "rule 2: unknown fault ''", id="no fault"),
        pytest.param('{"fault": "500", "from_s": "x"}', "rule 1: could not convert", id="time"),
        pytest.param('{"fault": "500", "to_s": null}', "rule 1", id="null"),
        pytest.param('{"fault": "connect_refused"}', "needs to_s", id="closed for ever"),
    ],
)
def test_a_wrong_script_is_an_error_that_names_the_rule(script: Any, complaint: str) -> None:
    with pytest.raises(BadFault, match=complaint):
        parse_script(script)


def test_the_catalogue_has_one_place_for_each_fault() -> None:
    assert not set(ERROR_ANSWERS) & set(BODY_FAULTS)
