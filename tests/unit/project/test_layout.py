"""Guards of the layout: what would break far from where the mistake was made."""

from __future__ import annotations

import importlib
import importlib.metadata
import operator
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGES = {
    "llmqueue": ROOT / "lib",
    "llmqueue_operator": ROOT / "operator",
    "llmqueue_worker": ROOT / "worker",
    "llmqueue_cli": ROOT / "cli",
}
MAX_LINES = 500


def test_the_operator_folder_is_no_package() -> None:
    """With an `__init__.py`, Python started in the project root would import it as `operator`."""
    assert not (ROOT / "operator" / "__init__.py").exists()


def test_operator_is_the_standard_library_s_module() -> None:
    found = subprocess.run(
        [sys.executable, "-c", "import operator; print(operator.__file__)"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(found.stdout.strip()).parent == Path(sysconfig.get_path("stdlib"))
    assert operator.itemgetter is not None


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_are_imported_from_the_tree_and_carry_their_types(package: str) -> None:
    module = importlib.import_module(package)
    assert module.__file__ is not None
    folder = PACKAGES[package] / package
    assert Path(module.__file__).parent == folder
    assert (folder / "py.typed").is_file()


@pytest.mark.parametrize("package", PACKAGES)
def test_tests_live_under_tests(package: str) -> None:
    source = PACKAGES[package]
    strays = [*source.rglob("test_*.py"), *source.rglob("*_test.py"), *source.rglob("conftest.py")]
    assert strays == []


@pytest.mark.parametrize("package", PACKAGES)
def test_no_module_is_too_long_to_read(package: str) -> None:
    sources = [p for kind in ("*.py", "*.lua") for p in PACKAGES[package].rglob(kind)]
    lengths = {str(p.relative_to(ROOT)): len(p.read_text().splitlines()) for p in sources}
    assert lengths
    assert {name: lines for name, lines in lengths.items() if lines > MAX_LINES} == {}


def test_one_version() -> None:
    """pyproject.toml is the source; the installed package and the release notes agree with it."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert importlib.metadata.version("llmqueue") == declared
    headings = [
        line.removeprefix("## [").partition("]")[0]
        for line in (ROOT / "CHANGELOG.md").read_text().splitlines()
        if line.startswith("## [")
    ]
    assert headings[:2] == ["Unreleased", declared] or headings[0] == declared
