"""Other programs that are run to their end."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from cluster.tool.errors import CommandFailed

_TAIL_LINES = 15


def say(line: str) -> None:
    """Tells the person who waits; stdout is for results."""
    print(line, file=sys.stderr, flush=True)


def run(
    *arguments: str | Path,
    stdin: str | None = None,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    timeout_seconds: float | None = None,
) -> str:
    """What the program wrote to stdout. `environment` is added to ours.

    Raises:
        CommandFailed: it ended with an error, is not there, or took too long.
    """
    words = [str(argument) for argument in arguments]
    try:
        done = subprocess.run(
            words,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            check=False,
            cwd=folder,
            timeout=timeout_seconds,
            env={**os.environ, **(environment or {})},
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise CommandFailed(f"{_shown(words)}: {exc}") from exc
    if done.returncode != 0:
        tail = "\n".join((done.stderr or done.stdout).strip().splitlines()[-_TAIL_LINES:])
        raise CommandFailed(f"{_shown(words)} ended with {done.returncode}:\n{tail}")
    return done.stdout


def _shown(words: Sequence[str]) -> str:
    return " ".join([Path(words[0]).name, *words[1:6]])
