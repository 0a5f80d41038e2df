"""The project's files, as a person would find them in its repository or an unpacked archive."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
LEFT_OUT = {".git", ".venv", "__pycache__", ".llmqueue", ".cluster", "dist", "build", "htmlcov"}


def tracked() -> list[Path]:
    """The repository's files; without git (an unpacked archive) all that are not generated."""
    if (ROOT / ".git").exists():
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout
        return [file for name in listed.split("\0") if name and (file := ROOT / name).is_file()]
    return [
        path
        for path in ROOT.rglob("*")
        if path.is_file()
        and not any(part in LEFT_OUT or part.endswith("_cache") for part in path.parts)
    ]
