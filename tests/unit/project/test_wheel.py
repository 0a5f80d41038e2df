"""The wheel: one distribution, four import packages, everything they need at run time."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path, PurePosixPath

import pytest
from packaging.metadata import Metadata

from support.checkout import ROOT, tracked


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> set[PurePosixPath]:
    (file,) = built.glob("*.whl")
    with zipfile.ZipFile(file) as archive:
        return {PurePosixPath(name) for name in archive.namelist()}


def test_exactly_four_packages(wheel: set[PurePosixPath]) -> None:
    tops = {name.parts[0] for name in wheel if not name.parts[0].endswith(".dist-info")}
    assert tops == {"llmqueue", "llmqueue_operator", "llmqueue_worker", "llmqueue_cli"}


@pytest.mark.parametrize("kind", ["*.py", "*.lua", "*.typed", "*.yaml", "*.json"])
def test_every_source_file_is_in_the_wheel(wheel: set[PurePosixPath], kind: str) -> None:
    sources = {
        PurePosixPath(file.relative_to(ROOT / top))
        for top in ("lib", "operator", "worker", "cli")
        for file in (ROOT / top).rglob(kind)
    }
    assert sources <= wheel


def test_the_scripts_of_the_store_are_in_the_wheel(wheel: set[PurePosixPath]) -> None:
    assert any(name.suffix == ".lua" and name.parts[:2] == ("llmqueue", "store") for name in wheel)


def test_the_wheel_carries_the_licence(wheel: set[PurePosixPath]) -> None:
    assert any(name.name == "LICENSE" for name in wheel)


def test_the_source_archive_builds_the_same_wheel(
    built: Path, wheel: set[PurePosixPath], tmp_path: Path
) -> None:
    (file,) = built.glob("*.tar.gz")
    with tarfile.open(file) as archive:
        if hasattr(tarfile, "data_filter"):  # Debian 12's Python has none yet
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(tmp_path)
    (source,) = tmp_path.iterdir()
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "again")],
        cwd=source,
        check=True,
        capture_output=True,
    )
    (again,) = (tmp_path / "again").glob("*.whl")
    with zipfile.ZipFile(again) as archive:
        assert {PurePosixPath(name) for name in archive.namelist()} == wheel


def test_an_index_would_take_its_metadata(built: Path, wheel: set[PurePosixPath]) -> None:
    """Checked against the rules of the format, as an index does with an upload."""
    (file,) = built.glob("*.whl")
    (name,) = [each for each in wheel if each.name == "METADATA"]
    with zipfile.ZipFile(file) as archive:
        metadata = Metadata.from_email(archive.read(str(name)), validate=True)
    assert metadata.description_content_type == "text/markdown"
    assert metadata.license_expression == "Apache-2.0"
    assert str(metadata.requires_python) == ">=3.11"
    assert metadata.description is not None
    # Where an index shows it, a path within the repository leads nowhere; pictures would be missing.
    assert "![" not in metadata.description


@pytest.fixture(scope="module")
def sources(built: Path) -> set[str]:
    (file,) = built.glob("*.tar.gz")
    with tarfile.open(file) as archive:
        return {name.partition("/")[2] for name in archive.getnames()}


def test_the_source_archive_holds_what_the_repository_keeps(sources: set[str]) -> None:
    kept = {str(path.relative_to(ROOT)) for path in tracked()}
    extra = {name for name in sources - kept if name != "PKG-INFO"}
    # A new file that is not yet added to the repository is in the archive already.
    assert {name for name in extra if re.search(r"(?:^|/)(?:\.(?!gitignore)|dist/)", name)} == set()
    assert {"Makefile", "Dockerfile", "CHANGELOG.md", "tests/conftest.py"} <= sources


def test_neither_archive_holds_a_secret(sources: set[str], wheel: set[PurePosixPath]) -> None:
    secret = re.compile(r"(?:\.(?:env|pem|key|p12|netrc|pypirc)|id_rsa|kubeconfig|pip\.conf)$")
    assert [name for name in [*sources, *map(str, wheel)] if secret.search(name)] == []
