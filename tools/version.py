"""One version: pyproject.toml says it, all other places repeat it.

`python -m tools.version 0.2.0` changes all of them, and dates the entries of the changelog.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_NUMBER = r"\d+\.\d+\.\d+"
# Each to be found at least once in its files; the group is the version.
_IMAGE = re.compile(rf"\bllmqueue/(?:operator|worker|cli):({_NUMBER})\b")
_TAG = re.compile(rf"\bnewTag: ({_NUMBER})\b")
_ARCHIVE = re.compile(rf"\bllmqueue(?:-[a-z]+)?-({_NUMBER})(?=\.tgz|\.tar\.gz|\.cdx|-py3)")
_VARIABLE = re.compile(rf"\bTAG=({_NUMBER})\b")
_EXAMPLES = ("examples/**/Dockerfile", "examples/**/*.yaml")


class WrongVersion(Exception):
    """A version that can't be the next one."""


@dataclass(frozen=True, slots=True)
class Place:
    """`files` are patterns of pathlib below the project, `pattern` has the version as its group."""

    files: tuple[str, ...]
    pattern: re.Pattern[str]

    def paths(self, root: Path) -> Iterator[Path]:
        for files in self.files:
            yield from sorted(root.glob(files))


SOURCE = Place(("pyproject.toml",), re.compile(rf'^version = "({_NUMBER})"$', re.MULTILINE))
PLACES = (
    SOURCE,
    Place(
        ("charts/llmqueue/Chart.yaml",),
        re.compile(rf'^(?:version|appVersion): "?({_NUMBER})"?$', re.MULTILINE),
    ),
    Place(("manifests/kustomization.yaml", "docs/how-to/*.md"), _TAG),
    Place(("manifests/*.yaml",), _IMAGE),
    Place(_EXAMPLES, _IMAGE),
    Place(("docs/**/*.md", "charts/**/*.md", "README.md"), _IMAGE),
    Place(("docs/**/*.md",), _ARCHIVE),
    Place(("docs/*.md",), _VARIABLE),
)


def current(root: Path = ROOT) -> str:
    """What pyproject.toml says. Raises WrongVersion where that can't be read."""
    found = SOURCE.pattern.search((root / "pyproject.toml").read_text())
    if found is None:
        raise WrongVersion("pyproject.toml has no version of three numbers")
    return found.group(1)


def found(root: Path = ROOT) -> list[tuple[Place, Path, str]]:
    """Every version at one of the places, in their order."""
    return [
        (place, path, match.group(1))
        for place in PLACES
        for path in place.paths(root)
        for match in place.pattern.finditer(path.read_text())
    ]


def change(version: str, *, root: Path = ROOT, today: date) -> list[Path]:
    """Write the version to all places and close the changelog's section; the files changed.

    Raises WrongVersion, before anything is written.
    """
    before = current(root)
    if not re.fullmatch(_NUMBER, version):
        raise WrongVersion(f"{version} is not three numbers, as 0.2.0")
    if _order(version) <= _order(before):
        raise WrongVersion(f"{version} does not come after {before}, the version of pyproject.toml")
    texts = {root / "CHANGELOG.md": _closed((root / "CHANGELOG.md").read_text(), version, today)}
    for place in PLACES:
        for path in place.paths(root):
            text = texts.get(path) or path.read_text()
            texts[path] = place.pattern.sub(lambda match: _with(match, version), text)
    changed = [path for path, text in texts.items() if text != path.read_text()]
    for path in changed:
        path.write_text(texts[path])
    return changed


def _with(match: re.Match[str], version: str) -> str:
    start, end = (position - match.start() for position in match.span(1))
    whole = match.group()
    return f"{whole[:start]}{version}{whole[end:]}"


def _closed(changelog: str, version: str, today: date) -> str:
    heading = "## [Unreleased]\n"
    _, there, rest = changelog.partition(heading)
    if not there or not rest.partition("\n## [")[0].strip():
        raise WrongVersion("CHANGELOG.md has nothing under Unreleased: nothing is there to release")
    return changelog.replace(heading, f"{heading}\n## [{version}] - {today.isoformat()}\n", 1)


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in version.split("."))


def main() -> int:
    parser = argparse.ArgumentParser(prog="tools.version", description=__doc__)
    parser.add_argument("version", help="the next version, as 0.2.0")
    try:
        changed = change(parser.parse_args().version, today=datetime.now(UTC).date())
    except WrongVersion as exc:
        print(f"version: {exc}", file=sys.stderr)
        return 1
    print("\n".join(str(path.relative_to(ROOT)) for path in changed))
    return 0


if __name__ == "__main__":
    sys.exit(main())
