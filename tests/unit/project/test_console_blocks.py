"""The commands of documents: how they are read and run, and that the tutorials' are whole."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from support.checkout import ROOT
from support.consoleblocks import Command, Failed, commands, replaced, run, told, verified

DOCUMENTS = ("README.md", "CONTRIBUTING.md", "docs/tutorial.md", "docs/tutorial-kubernetes.md")


def block(*lines: str) -> str:
    return "\n".join(["Text.", "", "```console", *lines, "```", "More.", ""])


def ran(tmp_path: Path, *texts: str, seconds: float = 20) -> list[tuple[int | None, str]]:
    found = [Command(number, text) for number, text in enumerate(texts, start=1)]
    done = run(
        found,
        folder=tmp_path,
        environment=os.environ,
        log=tmp_path / "log",
        timeout_seconds=seconds,
    )
    return [(each.code, each.output) for each in done]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["$ one"], [Command(4, "one")]),
        (["$ one", "$ two --x"], [Command(4, "one"), Command(5, "two --x")]),
        (["$ one \\", "    --x", "$ two"], [Command(4, "one \\\n    --x"), Command(6, "two")]),
        (["$ cat <<EOF", "a: 1", "", "EOF"], [Command(4, "cat <<EOF\na: 1\n\nEOF")]),
    ],
    ids=["one", "two", "continued", "here-document"],
)
def test_commands_are_the_lines_after_the_prompt(lines: list[str], expected: list[Command]) -> None:
    assert commands(block(*lines)) == expected


def test_other_blocks_hold_no_commands() -> None:
    assert commands(block("$ one").replace("console", "yaml")) == []


def test_lines_are_those_of_the_document() -> None:
    first, second = commands(block("$ one") + block("$ two"))
    assert (block("$ one") + block("$ two")).splitlines()[second.line - 1] == "$ two"
    assert first.line < second.line


def test_a_block_without_a_prompt_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="line 4: a console block begins with"):
        commands(block("output", "$ one"))


def test_a_replaced_command_must_be_there() -> None:
    found = [Command(1, "one"), Command(2, "two")]
    assert replaced(found, {"one": "1"}) == [Command(1, "1"), Command(2, "two")]
    with pytest.raises(KeyError, match="three"):
        replaced(found, {"three": "3"})


def test_they_run_in_one_shell(tmp_path: Path) -> None:
    texts = ["export NAME=x", 'say() { echo "$NAME $1"; }', "cat <<EOF\n$(say a)\nEOF", "cat"]
    assert ran(tmp_path, *texts) == [(0, ""), (0, ""), (0, "x a"), (0, "")]


def test_the_first_failure_is_the_end(tmp_path: Path) -> None:
    assert ran(tmp_path, "echo a", "echo why >&2; false", "echo b") == [(0, "a"), (1, "why")]


def test_what_does_not_end_is_told(tmp_path: Path) -> None:
    (one, two) = ran(tmp_path, "echo a", "echo b; exec sleep 30", seconds=1.5)
    assert one == (0, "a")
    assert two[0] is None
    assert two[1].startswith("b\n")
    assert "no end after" in two[1]


def test_a_failure_is_told_with_its_place(tmp_path: Path) -> None:
    found = [Command(7, "echo a"), Command(9, "exit 3")]
    done = run(
        found, folder=tmp_path, environment=os.environ, log=tmp_path / "log", timeout_seconds=20
    )
    assert "x.md:7: $ echo a\na" in told("x.md", done)
    with pytest.raises(Failed, match=r"x\.md:9: \$ exit 3"):
        verified("x.md", found, done)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_command_of_a_document_is_whole(name: str) -> None:
    found = commands((ROOT / name).read_text())
    assert found
    for command in found:
        read = subprocess.run(
            ["bash", "-n"], input=command.text, capture_output=True, text=True, check=False
        )
        assert (read.returncode, read.stderr) == (0, ""), f"{name}:{command.line}: {command.text}"
