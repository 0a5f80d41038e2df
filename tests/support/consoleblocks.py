"""A document's commands, as a reader copies them: the lines after `$ ` in its console blocks."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PROMPT = "$ "
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_MARK = "@@@@"


@dataclass(frozen=True, slots=True)
class Command:
    """`line` is its first one's number in the document; further lines belong to it."""

    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Done:
    """`code` is None where it did not come to an end."""

    command: Command
    code: int | None
    output: str


class Failed(Exception):
    """A command of a document did not do what a reader expects."""


def commands(document: str) -> list[Command]:
    """In their order. Raises ValueError where a block begins with something else."""
    return [command for block in _BLOCK.finditer(document) for command in _within(document, block)]


def _within(document: str, block: re.Match[str]) -> Iterator[Command]:
    first = document.count("\n", 0, block.start(1)) + 1
    lines = block.group(1).splitlines()
    starts = [index for index, line in enumerate(lines) if line.startswith(PROMPT)]
    if starts[:1] != [0]:
        raise ValueError(f"line {first}: a console block begins with {PROMPT!r}")
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        text = "\n".join([lines[start].removeprefix(PROMPT), *lines[start + 1 : end]])
        yield Command(first + start, text)


def replaced(found: Sequence[Command], changes: Mapping[str, str]) -> list[Command]:
    """With another text for some. Raises KeyError where one of these is not there."""
    missing = changes.keys() - {command.text for command in found}
    if missing:
        raise KeyError(f"no such command any more: {sorted(missing)}")
    return [Command(each.line, changes.get(each.text, each.text)) for each in found]


def run(
    found: Sequence[Command],
    *,
    folder: Path,
    environment: Mapping[str, str],
    log: Path,
    timeout_seconds: float,
) -> list[Done]:
    """One after the other in one shell, as in one terminal, up to the first that fails.

    `log` grows while they run. A command sees no input but its own.
    """
    script = folder / ".commands.sh"
    script.write_text(_script(found))
    with log.open("w") as sink:
        try:
            subprocess.run(
                ["bash", str(script)],
                cwd=folder,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                timeout=timeout_seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            sink.write(f"\nno end after {timeout_seconds:.0f} s\n")
    return _read(found, log.read_text())


def _script(found: Sequence[Command]) -> str:
    """Marks around each command tell its output and its exit code from the others'."""
    parts: list[str] = []
    for number, command in enumerate(found):
        parts += [
            f"echo {_MARK} {number} begins",
            command.text,
            f"code=$?; echo; echo {_MARK} {number} ends $code; [ $code = 0 ] || exit $code",
        ]
    return "\n".join([*parts, ""])


def _read(found: Sequence[Command], text: str) -> list[Done]:
    done: list[Done] = []
    for number, command in enumerate(found):
        pattern = rf"^{_MARK} {number} begins\n(.*?)(?:^{_MARK} {number} ends (\d+)$|\Z)"
        match = re.search(pattern, text, re.MULTILINE | re.DOTALL)
        if match is None:
            break
        code = None if match.group(2) is None else int(match.group(2))
        done.append(Done(command, code, match.group(1).strip("\n")))
    return done


def told(name: str, done: Sequence[Done]) -> str:
    """What a person would have seen, each command with its place in the document."""
    shown: list[str] = []
    for each in done:
        ended = {0: "", None: "  [did not end]"}.get(each.code, f"  [exit code {each.code}]")
        shown.append(f"{name}:{each.command.line}: $ {each.command.text}{ended}\n{each.output}")
    return "\n\n".join(shown)


def verified(name: str, found: Sequence[Command], done: Sequence[Done]) -> None:
    """Raises Failed, with everything so far, unless all commands ended well."""
    if len(done) < len(found) or any(each.code != 0 for each in done):
        raise Failed(f"{len(done)} of {len(found)} commands were run:\n{told(name, done)}")


def stand_in(folder: Path, program: str, script: str) -> None:
    """Puts a program of this name into a folder that is to come first in the PATH."""
    folder.mkdir(exist_ok=True)
    path = folder / program
    path.write_text(f"#!/bin/bash\n{script}\n")
    path.chmod(0o755)


def quoted(*words: str | Path) -> str:
    return shlex.join(str(word) for word in words)
