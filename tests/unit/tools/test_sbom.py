"""The bills of materials: valid, complete against the locks, the same each time."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from tools.sbom import SUBJECTS, Document, Subject, bill
from tools.version import ROOT, current

IMAGES = [subject for subject in SUBJECTS if subject.kind == "container"]


def named(name: str) -> Document:
    return bill(next(subject for subject in SUBJECTS if subject.name == name))


def components(content: Document) -> dict[str, str]:
    return {each["name"]: each["version"] for each in content["components"]}


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_each_is_valid_cyclonedx(subject: Subject) -> None:
    validator = JsonStrictValidator(SchemaVersion.V1_6)
    assert validator.validate_str(json.dumps(bill(subject))) is None
    assert validator.validate_str(json.dumps(bill(subject) | {"components": "none"})) is not None


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_each_says_what_it_is_of(subject: Subject) -> None:
    component = bill(subject)["metadata"]["component"]
    assert (component["name"], component["version"]) == (subject.name, current())


def test_every_package_of_a_lock_is_listed_in_its_version() -> None:
    lock = (ROOT / "requirements" / "all.txt").read_text()
    assert components(named("llmqueue")) == dict(re.findall(r"^([\w.-]+)==([^ ;]+)", lock, re.M))


def test_an_image_lists_nothing_that_only_other_systems_install() -> None:
    assert "colorama" in components(named("llmqueue"))
    assert all("colorama" not in components(bill(subject)) for subject in IMAGES)
    assert "uvloop" in components(named("llmqueue-worker"))


def test_what_the_package_itself_asks_for_is_told_apart() -> None:
    (edges,) = named("llmqueue-operator")["dependencies"]
    names = {re.sub(r"pkg:pypi/(.+)@.*", r"\1", each) for each in edges["dependsOn"]}
    assert {"kopf", "kubernetes", "pydantic", "httpx2"} <= names
    assert not names & {"aiohttp", "typer", "uvloop"}


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_its_extras_are_those_of_the_package(subject: Subject) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(subject.extras) <= set(project["optional-dependencies"])


def test_every_image_of_the_dockerfile_has_one() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    targets = re.findall(r"^FROM runtime AS (\w+)$", dockerfile, re.MULTILINE)
    assert [subject.lock for subject in IMAGES] == targets


@pytest.mark.parametrize("lock", ["operator", "worker", "cli", "all", "sbom", "build"])
def test_a_part_of_the_lock_has_its_versions(lock: str) -> None:
    """Images, distribution and tests run on the same packages."""
    pinned = {
        path: dict(re.findall(r"^([\w.-]+)==([^ ;]+)", path.read_text(), re.MULTILINE))
        for path in (ROOT / "constraints.txt", ROOT / "requirements" / f"{lock}.txt")
    }
    whole, part = pinned.values()
    assert part
    assert {name: version for name, version in part.items() if whole.get(name) != version} == {}


def test_it_is_the_same_each_time(tmp_path: Path) -> None:
    first, second = (json.dumps(bill(SUBJECTS[0])) for _ in range(2))
    assert first == second
