"""The committed reference is what `make docs` writes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client import generate_latest

from llmqueue.spec.documents import read_documents
from llmqueue.spec.reference import CRD, REFERENCE, render
from llmqueue_cli import metrics_reference
from llmqueue_operator.exporter import registry
from llmqueue_operator.metrics import Metrics
from llmqueue_worker.inflight import InFlight
from llmqueue_worker.metrics import Stats
from llmqueue_worker.metrics import registry as worker_registry

ROOT = Path(__file__).parents[3]
STALE = "run `make docs` and commit what it writes"


def test_the_reference_of_the_command_line(tmp_path: Path) -> None:
    page = tmp_path / "cli.md"
    subprocess.run(
        [sys.executable, "-m", "typer", "llmqueue_cli.main", "utils", "docs",
         "--name", "llmqueue", "--output", str(page)],
        check=True,
        capture_output=True,
    )  # fmt: skip
    assert (ROOT / "docs/reference/cli.md").read_text() == page.read_text(), STALE


def test_the_reference_of_the_resource() -> None:
    (crd,) = read_documents(ROOT / CRD)
    assert (ROOT / REFERENCE).read_text() == render(crd), STALE


# ---------------------------------------------------------------- metrics


def test_the_reference_of_the_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    metrics_reference.main()
    page = metrics_reference.REFERENCE
    assert (ROOT / page).read_text() == (tmp_path / page).read_text(), STALE


def test_every_metric_of_a_scrape_is_on_the_page() -> None:
    page = metrics_reference.render()
    for found, least in ((registry(Metrics()), 40), (worker_registry(Stats(InFlight(1))), 10)):
        shown = generate_latest(found).decode().splitlines()
        exported = [line.split()[2] for line in shown if line.startswith("# TYPE llmqueue_")]
        assert len(exported) > least
        assert [name for name in exported if f"| `{name}` |" not in page] == []


def test_labels_of_a_metric() -> None:
    row = "| `llmqueue_retries_total` | counter | `namespace`, `queue`, `outcome` |"
    assert row in metrics_reference.render()
    assert "| `llmqueue_worker_info` | gauge | `version` |" in metrics_reference.render()
