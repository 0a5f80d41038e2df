"""The benchmarks' small parts: marks of jobs, quantiles, tables, choice of systems, pinned peers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from benchmarks.queue.marks import Marks
from benchmarks.queue.systems import PROGRAMS, REQUIREMENTS, SYSTEMS, chosen
from benchmarks.scripts.report import verdicts
from benchmarks.scripts.server_time import quantile, times
from benchmarks.tables import table


def test_marks_count_records_and_keep_repeats(tmp_path: Path) -> None:
    marks = Marks(tmp_path / "marks")
    assert marks.count() == 0
    assert marks.numbers("e") == []
    marks.path.write_text("s000001\ne000001\ne000002\ne000001\n")
    assert marks.count() == 4
    assert marks.numbers("e") == [1, 2, 1]
    assert marks.numbers("s") == [1]


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        pytest.param(0.5, 50, id="median"),
        pytest.param(0.99, 99, id="p99"),
        pytest.param(1.0, 100, id="max"),
        pytest.param(0.001, 1, id="lowest"),
    ],
)
def test_quantile_is_nearest_rank(share: float, expected: int) -> None:
    assert quantile(range(1, 101), share) == expected


def test_times_need_no_order() -> None:
    found = times([30.0, 10.0, 20.0])
    assert (found.calls, found.p50_us, found.max_us) == (3, 20.0, 30.0)


def test_table_aligns_numbers_right() -> None:
    lines = table(["name", "n"], [["a", "1,000"], ["long", "2"]]).splitlines()
    assert lines == [
        "| name |     n |",
        "| ---- | ----: |",
        "| a    | 1,000 |",
        "| long |     2 |",
    ]


def test_an_unknown_system_is_named() -> None:
    with pytest.raises(SystemExit, match="no system 'sidekiq'; there are: llmqueue,"):
        chosen("arq,sidekiq")
    assert [system.name for system in chosen("rq, arq")] == ["rq", "arq"]


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.name)
def test_each_system_has_its_program_and_exact_versions(system: object) -> None:
    assert isinstance(system, type(SYSTEMS[0]))
    assert (PROGRAMS / system.program).is_file()
    if not system.environment:
        return
    lines = (REQUIREMENTS / f"{system.environment}.txt").read_text().splitlines()
    assert all(re.fullmatch(r"[a-z0-9-]+==[0-9][0-9a-z.]*", line) for line in lines), lines
    assert any(line.startswith(f"{system.distribution}==") for line in lines)


def test_verdicts_compare_with_bounds() -> None:
    claim = {"calls": 10, "p50_us": 200.0, "p99_us": 700.0, "max_us": 900.0}
    slow = {"calls": 10, "p50_us": 200.0, "p99_us": 700.0, "max_us": 6_000.0}
    said = verdicts(
        {
            "scripts": {
                "1,000 waiting, claims of one job": {"claim": claim},
                "200 leases expire at once": {"claim": slow},
            },
            "memory": {"overhead_bytes": 320.4, "overhead_with_key_bytes": 339.0},
        }
    )
    assert said[0] == "longest script: 6.0 ms (claim, 200 leases expire at once); bound 5 ms"
    assert said[1].startswith("claim of one job, 1,000 waiting: p99 is 3.5 × p50 (200 µs)")
    assert "320 bytes" in said[2]
    assert "339 bytes" in said[3]
