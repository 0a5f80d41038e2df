"""The comparison's page: ratios against the right rivals, failures named, no part invented."""

from __future__ import annotations

import re
from typing import Any

import pytest
from benchmarks.queue import report
from benchmarks.queue.speed import Speed, median

MACHINE = {
    "date": "2026-01-01 00:00 UTC",
    "cpu": "a processor",
    "cores": 2,
    "memory_gib": 8.0,
    "kernel": "6.1",
    "python": "3.11.7",
    "valkey": "9.1.2",
    "llmqueue": "0.1.0",
    "load_before": 0.1,
}


def row(jobs_per_second: float, cpu: float) -> dict[str, Any]:
    figures = {
        "enqueue_per_second": 5000.0,
        "enqueue_cpu_per_1k": 0.1,
        "process_per_second": jobs_per_second,
        "worker_cpu_per_1k": cpu,
        "valkey_cpu_per_1k": 0.1,
    }
    return {"version": "1.0", "median": figures, "rounds": [figures]}


def speed_part(**more: Any) -> dict[str, Any]:
    systems = {
        "llmqueue": row(2400, 0.2),
        "llmqueue (sent + ledger)": row(1800, 0.3),
        "dramatiq": row(2000, 0.5),
        "arq": row(900, 0.4),
    }
    return {
        "machine": MACHINE,
        "jobs": 5000,
        "rounds": 3,
        "systems": systems,
        "failures": [],
        **more,
    }


def test_ratios_name_the_fastest_that_survives_and_the_leanest() -> None:
    first, second = report.ratios(speed_part()["systems"])
    assert first.startswith("llmqueue: 1.20 × the jobs a second of dramatiq")
    assert "0.50 × the worker CPU of arq" in first
    assert second.startswith("llmqueue (sent + ledger): 0.90 ×")


def test_without_a_peer_there_is_no_ratio() -> None:
    assert report.ratios({"llmqueue": row(2400, 0.2)}) == []


def test_page_has_each_system_and_failures() -> None:
    page = report.markdown({"speed": speed_part(failures=["rq: stopped at 3\nand a trace"])})
    assert "| arq " in page
    assert re.search(r"\| llmqueue +\| .*\| +2,400 \|", page)
    assert "- did not count: rq: stopped at 3\n" in page
    assert "and a trace" not in page
    assert "After kill -9" not in page


@pytest.mark.parametrize(
    ("last_seconds", "words"),
    [
        pytest.param(None, "not within 90 s", id="never"),
        pytest.param(12.3, "12 s", id="came-back"),
    ],
)
def test_recovery_says_when_jobs_came_back(last_seconds: float | None, words: str) -> None:
    recovered = {
        "interrupted": 32,
        "back": 32 if last_seconds else 0,
        "first_seconds": last_seconds,
        "last_seconds": last_seconds,
        "untouched": 64,
        "untouched_done": 64,
        "cap_seconds": 90.0,
    }
    part = {
        "machine": MACHINE,
        "cap_seconds": 90.0,
        "systems": {"bullmq": recovered},
        "failures": [],
    }
    page = report.markdown({"recovery": part})
    assert words in page
    assert "64 of 64" in page
    assert "## Speed and CPU" not in page


def test_median_is_taken_of_each_figure() -> None:
    rounds = [Speed(1, 9, 10, 0.3, 5), Speed(3, 8, 30, 0.1, 6), Speed(2, 7, 20, 0.2, 7)]
    assert median(rounds) == Speed(2, 8, 20, 0.2, 6)


def test_repeated_runs_are_named() -> None:
    repeated = row(700, 1.3)
    repeated["rounds"].append(repeated["rounds"][0] | {"repeated": 3})
    assert report.repeats({"saq": repeated, "arq": row(900, 0.4)}) == [
        "saq ran up to 3 of a round's jobs more than once"
    ]
