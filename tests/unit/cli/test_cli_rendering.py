"""How records reach the reader."""

from __future__ import annotations

import json

import pytest

from llmqueue.job import JobView
from llmqueue.states import JobState
from llmqueue_cli.rendering import content, duration, job_record, job_row, print_table, usd


def view(**fields: object) -> JobView:
    known: dict[str, object] = {
        "id": "abcd1", "queue": "default/q", "state": JobState.SUCCEEDED, "priority": 5,
        "tenant": "", "feature": "", "model": "m", "created_at": 1.5, "finished_at": 2.5,
        "not_before": None, "deadline_at": None, "attempts_used": 1,
        "attempts": [{"class": "SUCCESS", "status": 200, "nano_usd": 54_399_000}],
        "payload": None, "result": b'{"a":1}', "error": None, "cost_nano_usd": 54_399_000,
        "possible_duplicate": False,
    }  # fmt: skip
    return JobView(**{**known, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("nano", "text"),
    [
        pytest.param(None, None, id="unknown stays unknown"),
        pytest.param(0, "0", id="zero is a price"),
        pytest.param(54_399_000, "0.054399", id="the golden Claude bill"),
        pytest.param(1, "0.000000001", id="one nano, no exponent"),
        pytest.param(2_500_000_000, "2.5", id="dollars"),
        pytest.param(100_000_000_000, "100", id="zeros of the number itself stay"),
        pytest.param(123_456_789_012_345_678, "123456789.012345678", id="beyond a float"),
    ],
)
def test_money_is_an_exact_decimal(nano: int | None, text: str | None) -> None:
    assert usd(nano) == text


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        pytest.param(None, None, id="nothing"),
        pytest.param(b'{"x": [1, "\\u00e9"]}', {"x": [1, "é"]}, id="JSON is parsed"),
        pytest.param(b"plain \xc3\xa9", "plain é", id="text stays text"),
        pytest.param(b"\xff\x00", {"base64": "/wA="}, id="bytes are not lost"),
        pytest.param(b"", "", id="empty"),
    ],
)
def test_contents_keep_what_they_are(raw: bytes | None, value: object) -> None:
    assert content(raw) == value


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (0, "0 s"),
        (2.34, "2.3 s"),
        (59.4, "59 s"),
        (61, "1 min 1 s"),
        (7500, "2 h 5 min"),
        (273_600, "3 d 4 h"),
    ],
)
def test_durations_are_for_people(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_a_job_record_has_the_fixed_words() -> None:
    record = json.loads(json.dumps(job_record(view())))
    assert record["id"] == "abcd1"
    assert record["state"] == "succeeded"
    assert record["result"] == {"a": 1}
    assert record["error"] is None
    assert record["cost_usd"] == "0.054399"
    assert record["attempts"] == [{"class": "SUCCESS", "status": 200, "cost_usd": "0.054399"}]


def test_a_call_without_a_price_has_no_cost() -> None:
    row = job_row(view(cost_nano_usd=None, attempts=[{"class": "SUCCESS", "nano_usd": None}]))
    assert row["cost_usd"] is None
    assert row["attempts"] == [{"class": "SUCCESS", "cost_usd": None}]


def test_a_piped_table_cuts_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    long = "word " * 60 + "[red]end"
    print_table(("ID", "WHY"), [("a", long)])
    out = capsys.readouterr().out
    assert long in out
    assert out.splitlines()[0].split() == ["ID", "WHY"]
