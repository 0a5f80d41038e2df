"""Latency and output: drawn, or as in a trace."""

from __future__ import annotations

import random
import statistics
from pathlib import Path

import pytest

from llmqueue_cli.simulate.distribution import (
    Constant,
    Lognormal,
    TraceOutputs,
    parse_distribution,
    read_trace,
)
from llmqueue_cli.simulate.fault import BadFault, Fault
from llmqueue_cli.simulate.options import ProviderOptions
from llmqueue_cli.simulate.plan import Planner
from llmqueue_cli.simulate.shapes.port import Ask, Usage

EXCERPT = Path(__file__).parents[3] / "examples/traces/azure_llm_2023_conv_excerpt.csv"


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("2.5", Constant(2.5)),
        ("constant:2.5", Constant(2.5)),
        ("lognormal:2,0.5", Lognormal(2, 0.5)),
        ("0", Constant(0)),
    ],
)
def test_what_a_distribution_is_called(text: str, parsed: object) -> None:
    assert parse_distribution(text) == parsed


@pytest.mark.parametrize(
    "text", ["", "x", "-1", "nan", "1,2", "lognormal:2", "lognormal:0,1", "uniform:1,2"]
)
def test_what_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="is none of"):
        parse_distribution(text)


def test_the_mean_of_a_lognormal_is_that_of_its_numbers() -> None:
    rng = random.Random(1)
    drawn = [Lognormal(2.0, 0.5).draw(rng) for _ in range(20_000)]
    assert statistics.mean(drawn) == pytest.approx(2.0, rel=0.02)
    assert statistics.median(drawn) == pytest.approx(2.0 / 1.1331, rel=0.02)


def test_a_trace_is_read_in_its_order_and_again(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\nx,5,10\nx,6,20\n")
    trace, rng = read_trace(path), random.Random(0)
    assert [trace.draw(rng) for _ in range(5)] == [10, 20, 10, 20, 10]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("TIMESTAMP,GeneratedTokens\n", "no rows"),
        ("a,b\n1,2\n", "no column GeneratedTokens"),
        ("GeneratedTokens\nmany\n", "invalid literal"),
    ],
)
def test_a_wrong_trace_is_named(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=rf"trace\.csv: .*{complaint}"):
        read_trace(path)


def test_the_excerpt_of_real_traffic_can_be_read_and_is_short() -> None:
    assert len(EXCERPT.read_text().splitlines()) <= 2000
    assert read_trace(EXCERPT).draw(random.Random(0)) == 44


def _work(asked: dict[str, str], **options: object) -> tuple[float, Usage]:
    planner = Planner(ProviderOptions(**options), random.Random(0))  # type: ignore[arg-type]
    work = planner.work(Ask("m", 12, 100), asked)
    return work.seconds, work.usage


def test_a_call_takes_its_latency_and_the_time_of_its_tokens() -> None:
    seconds, usage = _work(
        {}, latency=Constant(0.3), output_tokens=TraceOutputs([40]), seconds_per_token=0.02
    )
    assert seconds == pytest.approx(1.1)
    assert usage == Usage(12, 40)


def test_the_requests_maximum_cuts_what_is_drawn() -> None:
    assert _work({}, output_tokens=Constant(5000))[1].output_tokens == 100


def test_what_a_request_asks_for_wins() -> None:
    asked = {"latency": "2.5", "input": "3", "output": "550", "cache_write": "12304"}
    seconds, usage = _work({**asked, "cache_read": "7", "reasoning": "200"})
    assert seconds == 2.5
    assert usage == Usage(3, 550, 7, 12304, 200)
    assert (usage.total_input_tokens, usage.counted_input_tokens) == (12314, 12307)


def test_a_wrong_wish_is_an_error() -> None:
    with pytest.raises(BadFault, match="latency='soon'"):
        _work({"latency": "soon"})


def test_a_fault_with_times_befalls_each_job_that_often() -> None:
    planner = Planner(ProviderOptions(), random.Random(0))
    fault = Fault("529", {"times": "2"})
    assert [planner.still_faulty(fault, "a") for _ in range(3)] == [True, True, False]
    assert planner.still_faulty(fault, "b")
    assert all(planner.still_faulty(Fault("529"), "a") for _ in range(5))
