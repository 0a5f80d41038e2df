"""What the demo shows while it runs."""

from __future__ import annotations

import io
import sys

import pytest
from rich.console import Console

from llmqueue_cli.local.demo.view import LineView, LiveView, Row, output_for, view

ROW = Row(
    queue="demo-openai",
    waiting=200,
    in_flight=8,
    done=67,
    submitted=275,
    workers=2,
    wanted=3,
    recent=120,
    limit=240,
    bound_by="RequestsPerMinute",
)


def test_a_pipe_gets_each_act_and_a_line_now_and_then() -> None:
    out = io.StringIO()
    shown = view(out)
    assert isinstance(shown, LineView)
    for act in ("a burst", "a burst", "failures"):
        shown.show(act, [ROW], [])
    shown.close()
    lines = out.getvalue().splitlines()
    assert [line for line in lines if line.startswith("==")] == ["== a burst", "== failures"]
    assert len(lines) == 4, "the second look is too soon for another line"
    assert lines[1].strip() == (
        "demo-openai: 200 waiting, 8 in flight, 67 done; 2 workers of 3 wanted"
        " (RequestsPerMinute); 120 calls in 60 s, 240 allowed"
    )


def test_a_terminal_gets_a_table_that_needs_no_explanation() -> None:
    out = io.StringIO()
    shown = LiveView(Console(file=out, force_terminal=True, width=160))
    shown.show("a burst of jobs arrives", [ROW], ["default/demo-openai: workers 0 → 3"])
    shown.close()
    text = out.getvalue()
    for expected in ("a burst of jobs arrives", "67 of 275", "●●○ 2", "██████████░░░░░░░░░░ 120/240",
                     "RequestsPerMinute", "workers 0 → 3"):  # fmt: skip
        assert expected in text


@pytest.mark.parametrize(("as_json", "name"), [(True, "stderr"), (False, "stdout")])
def test_stdout_is_for_the_figures_where_these_were_asked_for(as_json: bool, name: str) -> None:
    assert output_for(as_json=as_json) is getattr(sys, name)
