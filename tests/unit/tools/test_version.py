"""One version everywhere, and the command that changes it."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from datetime import date
from pathlib import Path

import pytest
from tools.version import PLACES, ROOT, WrongVersion, change, current, found

from support.checkout import tracked

DAY = date(2027, 1, 2)
# Where a number that looks like the version is another one, or tells what once was.
ELSEWHERE = re.compile(
    r"CHANGELOG\.md|constraints\.txt|(?:benchmarks|requirements|tests|docs/adr)/"
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the places and the changelog, at 0.1.0, with something to release."""
    for place in PLACES:
        for path in place.paths(ROOT):
            target = tmp_path / path.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
    changelog = (
        "# Changelog\n\n## [Unreleased]\n\n### Added\n- Something.\n\n## [0.1.0]\n\nThe core.\n"
    )
    (tmp_path / "CHANGELOG.md").write_text(changelog)
    return tmp_path


def test_all_places_agree() -> None:
    assert {version for _, _, version in found()} == {current()}


def test_each_place_is_there() -> None:
    counts = Counter(place for place, _, _ in found())
    missing = [place.files for place in PLACES if not counts[place]]
    assert missing == []
    chart = [path for _, path, _ in found() if path.name == "Chart.yaml"]
    assert len(chart) == 2, "version and appVersion"


def test_no_file_names_the_version_at_another_place() -> None:
    known = Counter(str(path.relative_to(ROOT)) for _, path, _ in found())
    number = re.compile(rf"(?<![\w.]){re.escape(current())}(?![\w.]*\d)")
    mentions = {
        name: len(number.findall(path.read_text(errors="ignore")))
        for path in tracked()
        if not ELSEWHERE.match(name := str(path.relative_to(ROOT)))
    }
    missed = {name: count for name, count in mentions.items() if count > known[name]}
    assert missed == {}, f"`make version` changes only {known}"


def test_a_new_version_reaches_every_place(project: Path) -> None:
    before = found(project)

    changed = change("0.2.0", root=project, today=DAY)

    assert [version for _, _, version in found(project)] == ["0.2.0"] * len(before)
    assert {path for _, path, _ in before} < set(changed)


def test_nothing_else_is_changed(project: Path) -> None:
    kustomization = project / "manifests/kustomization.yaml"
    before = kustomization.read_text()

    change("0.2.0", root=project, today=DAY)

    assert kustomization.read_text() == before.replace("newTag: 0.1.0", "newTag: 0.2.0")


def test_the_changelog_s_entries_get_the_version_and_the_day(project: Path) -> None:
    change("0.2.0", root=project, today=DAY)

    assert (
        (project / "CHANGELOG.md")
        .read_text()
        .startswith(
            "# Changelog\n\n## [Unreleased]\n\n## [0.2.0] - 2027-01-02\n\n### Added\n- Something.\n"
        )
    )


@pytest.mark.parametrize(
    ("version", "changelog", "message"),
    [
        ("0.1.0", None, "does not come after 0.1.0"),
        ("0.0.9", None, "does not come after 0.1.0"),
        ("v0.2.0", None, "not three numbers"),
        ("0.2", None, "not three numbers"),
        ("0.2.0rc1", None, "not three numbers"),
        ("0.2.0", "# Changelog\n\n## [Unreleased]\n\n## [0.1.0]\n", "nothing is there to release"),
        ("0.2.0", "# Changelog\n\n## [0.1.0]\n", "nothing is there to release"),
    ],
)
def test_a_version_that_can_t_be_the_next_changes_nothing(
    project: Path, version: str, changelog: str | None, message: str
) -> None:
    if changelog is not None:
        (project / "CHANGELOG.md").write_text(changelog)
    before = {path: path.read_text() for path in project.rglob("*") if path.is_file()}

    with pytest.raises(WrongVersion, match=message):
        change(version, root=project, today=DAY)

    assert {path: path.read_text() for path in before} == before
