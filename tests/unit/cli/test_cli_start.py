"""What `llmqueue --help` must not pay for."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.fixture(scope="module")
def imported() -> set[str]:
    code = "import sys, llmqueue_cli.main; print(*sys.modules)"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    return set(found.split())


@pytest.mark.parametrize(
    "module", ["asyncio", "pydantic", "redis", "httpx2", "rich", "yaml", "h11", "structlog"]
)
def test_the_command_table_needs_nothing_heavy(imported: set[str], module: str) -> None:
    assert "llmqueue_cli.simulate.command" in imported
    assert module not in imported
