"""The layers: the contracts of pyproject.toml hold, and they notice when they do not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
CONTRACTS = ROOT / "pyproject.toml"


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    """Check the contracts of `folder`'s pyproject.toml over the packages in its source folders."""
    parts = [str(folder / part) for part in ("lib", "operator", "worker", "cli")]
    return subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()",
         "--no-cache", "--no-logo"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(parts)},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip


def test_the_contracts_hold() -> None:
    result = lint(ROOT)
    assert result.returncode == 0, result.stdout


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project of the same shape that keeps to every contract."""
    for package in (
        "lib/llmqueue",
        "lib/llmqueue/store",
        "operator/llmqueue_operator",
        "operator/llmqueue_operator/planning",
        "operator/llmqueue_operator/kube",
        "worker/llmqueue_worker",
        "cli/llmqueue_cli",
        "tools",
    ):
        (tmp_path / package).mkdir(parents=True)
        (tmp_path / package / "__init__.py").touch()
    (tmp_path / "lib/llmqueue/store/adapter.py").write_text("import redis.asyncio\n")
    (tmp_path / "operator/llmqueue_operator/kube/client.py").write_text("import kubernetes\n")
    (tmp_path / "cli/llmqueue_cli/up.py").write_text("import llmqueue_operator.planning\n")
    (tmp_path / "pyproject.toml").write_text(CONTRACTS.read_text())
    return tmp_path


def test_the_right_imports_are_allowed(project: Path) -> None:
    result = lint(project)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("lib/llmqueue/x.py", "import llmqueue_worker", "lib imports none of the applications"),
        ("lib/llmqueue/x.py", "import redis", "only the store talks to Redis"),
        ("lib/llmqueue/x.py", "import redis.asyncio", "only the store talks to Redis"),
        ("worker/llmqueue_worker/x.py", "import redis", "only the store talks to Redis"),
        ("worker/llmqueue_worker/x.py", "import llmqueue_cli", "no application imports the"),
        ("worker/llmqueue_worker/x.py", "import llmqueue_operator.planning", "do not import each"),
        ("cli/llmqueue_cli/x.py", "import kubernetes", "only kube talks to Kubernetes"),
        ("operator/llmqueue_operator/planning/x.py", "import time", "planning is pure"),
        ("operator/llmqueue_operator/planning/x.py", "import random", "planning is pure"),
        ("operator/llmqueue_operator/planning/x.py", "import logging", "planning is pure"),
        ("operator/llmqueue_operator/planning/x.py", "import redis", "planning is pure"),
        ("operator/llmqueue_operator/planning/x.py", "import asyncio", "planning is pure"),
    ],
    ids=lambda value: value if "import " in value else None,
)
def test_a_wrong_import_is_noticed(project: Path, module: str, line: str, contract: str) -> None:
    (project / module).write_text(line + "\n")

    result = lint(project)

    assert result.returncode == 1
    broken = [row for row in result.stdout.splitlines() if " BROKEN" in row]
    assert any(contract in row for row in broken), result.stdout
