"""The committed reference is what `make docs` writes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from llmqueue.spec.documents import read_documents
from llmqueue.spec.reference import CRD, REFERENCE, render

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
