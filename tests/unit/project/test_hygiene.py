"""Guards of what the repository keeps: nothing of one machine, no registry, nothing generated."""

from __future__ import annotations

import re
from functools import cache

import pytest

from support.checkout import ROOT, tracked

MACHINE_PATH = re.compile(r"(?<![\w.}/])/(?:work|root|home/\w+|Users/\w+)/")
# Written so that this file does not contain what it looks for.
REGISTRY = re.compile(
    r"(?:pypi|pythonhosted|crates|maven)\.(?:org|io)|npmjs\.(?:org|com)|proxy\.golang|deb\.debian"
    r"|(?<!\w)(?:index|extra-index|registry)[-_]url\s*="
)


@cache
def texts() -> dict[str, str]:
    found: dict[str, str] = {}
    for path in tracked():
        try:
            found[str(path.relative_to(ROOT))] = path.read_text()
        except UnicodeDecodeError:
            continue
    return found


def lines_with(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{name}:{number}: {line.strip()[:120]}"
        for name, text in texts().items()
        for number, line in enumerate(text.splitlines(), start=1)
        if pattern.search(line)
    ]


@pytest.mark.parametrize(
    ("pattern", "bad"),
    [
        (MACHINE_PATH, "cd /ro" + "ot/project"),
        (MACHINE_PATH, 'open("/ho' + 'me/someone/x")'),
        (REGISTRY, "https://files.python" + "hosted.org/x.whl"),
        (REGISTRY, "https://registry.npm" + "js.org/x"),
    ],
)
def test_the_patterns_find_what_they_are_for(pattern: re.Pattern[str], bad: str) -> None:
    assert pattern.search(bad)


def test_no_path_of_one_machine() -> None:
    assert lines_with(MACHINE_PATH) == []


def test_no_registry_is_named() -> None:
    """Which registry serves the packages is the user's choice, in the client's own settings."""
    assert lines_with(REGISTRY) == []


def test_no_generated_file_is_kept() -> None:
    generated = re.compile(r"(?:\.pyc|\.so|\.egg-info|\.rdb|\.aof|\.coverage.*)$")
    assert [name for name in texts() if generated.search(name)] == []


def test_every_dependency_is_locked_with_its_hash() -> None:
    lock = texts()["constraints.txt"]
    entries = [line for line in lock.splitlines() if line and line[0].isalnum()]
    assert len(entries) > 50
    assert [entry for entry in entries if "==" not in entry or not entry.endswith("\\")] == []


def test_every_link_between_documents_leads_somewhere() -> None:
    link = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)")
    broken = [
        f"{name}: {target}"
        for name, text in texts().items()
        if name.endswith(".md")
        for target in link.findall(text)
        if not (ROOT / name).parent.joinpath(target).exists()
    ]
    assert broken == []
