"""Software bills of materials from the lock files, as CycloneDX 1.6.

`python -m tools.sbom FOLDER` writes one for each image and one for the distribution with all of
its extras. They list what the locks name; an image carries the list of what was installed into it
at /usr/share/doc/llmqueue/sbom.cdx.json.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.version import ROOT

Document = dict[str, Any]
# The images' default base. Elsewhere the locks ask for a package more or less.
_IN_AN_IMAGE = {
    "implementation_name": "cpython",
    "os_name": "posix",
    "platform_python_implementation": "CPython",
    "platform_system": "Linux",
    "python_full_version": "3.13.0",
    "python_version": "3.13",
    "sys_platform": "linux",
}


@dataclass(frozen=True, slots=True)
class Subject:
    """What a list is of; `extras` are those of pyproject.toml that it is installed with."""

    name: str
    kind: str
    lock: str
    extras: tuple[str, ...]
    environment: dict[str, str] | None


SUBJECTS = (
    Subject("llmqueue", "library", "all", ("operator", "worker", "cli", "embedded"), None),
    Subject("llmqueue-operator", "container", "operator", ("operator",), _IN_AN_IMAGE),
    Subject("llmqueue-worker", "container", "worker", ("worker",), _IN_AN_IMAGE),
    Subject("llmqueue-cli", "container", "cli", ("cli", "worker"), _IN_AN_IMAGE),
)


def bill(subject: Subject, *, root: Path = ROOT) -> Document:
    """The same for the same locks: it has no time and no random number."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    locked = {
        canonicalize_name(requirement.name): _purl(requirement)
        for requirement in _locked(root / "requirements" / f"{subject.lock}.txt")
        if _applies(requirement.marker, subject.environment)
    }
    optional = project["optional-dependencies"]
    asked = [
        *project["dependencies"],
        *(each for extra in subject.extras for each in optional[extra]),
    ]
    direct = {canonicalize_name(Requirement(each).name) for each in asked} & locked.keys()
    itself = f"pkg:pypi/{project['name']}@{project['version']}"
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "bom-ref": itself,
                "type": subject.kind,
                "name": subject.name,
                "version": project["version"],
                "description": project["description"],
                "licenses": [{"license": {"id": project["license"]}}],
                "purl": itself,
            }
        },
        "components": [
            {"bom-ref": purl, "type": "library", "name": name, "version": version, "purl": purl}
            for name, purl in sorted(locked.items())
            for version in [purl.rpartition("@")[2]]
        ],
        "dependencies": [{"ref": itself, "dependsOn": sorted(locked[name] for name in direct)}],
        # A lock does not say which package asks for which.
        "compositions": [{"aggregate": "incomplete", "dependencies": [itself]}],
    }


def _locked(lock: Path) -> list[Requirement]:
    """The lines that name a package; their hashes are in lines of their own."""
    lines = re.findall(r"^(\w\S*==.+?) *\\?$", lock.read_text(), re.MULTILINE)
    return [Requirement(line) for line in lines]


def _applies(marker: Marker | None, environment: dict[str, str] | None) -> bool:
    return marker is None or environment is None or marker.evaluate(environment)


def _purl(requirement: Requirement) -> str:
    version = str(requirement.specifier).removeprefix("==")
    return f"pkg:pypi/{canonicalize_name(requirement.name)}@{version}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="tools.sbom", description=__doc__)
    parser.add_argument("folder", type=Path, help="where to write them")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for subject in SUBJECTS:
        content = bill(subject)
        version = content["metadata"]["component"]["version"]
        path = folder / f"{subject.name}-{version}.cdx.json"
        path.write_text(json.dumps(content, indent=2) + "\n")
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
