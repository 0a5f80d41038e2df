"""skaffold.yaml as Skaffold reads it: profiles applied, templates filled in."""

from __future__ import annotations

import copy
import re
from typing import Any

import yaml

from support.checkout import ROOT

SKAFFOLD: dict[str, Any] = yaml.safe_load((ROOT / "skaffold.yaml").read_text())
# One that was pushed, with the digest that the registry gave it, and one that was not.
IMAGES = {
    "llmqueue-operator": "registry.example/team/llmqueue-operator:5d1@sha256:" + "a" * 64,
    "llmqueue-worker": "llmqueue-worker:5d1",
}


def release(profile: str | None = None) -> dict[str, Any]:
    """The one Helm release."""
    document = copy.deepcopy(SKAFFOLD)
    for each in document["profiles"]:
        if each["name"] == profile:
            for patch in each["patches"]:
                _add(document, patch["path"].split("/")[1:], patch["value"])
    (found,) = document["deploy"]["helm"]["releases"]
    return dict(found)


def values(found: dict[str, Any], images: dict[str, str] | None = None) -> list[str]:
    """The options that Helm is given for a release."""
    known: dict[str, str] = {}
    for image, reference in (images or IMAGES).items():
        match = re.fullmatch(r"([^@]+?)(?::([^/:@]+))?(?:@(.+))?", reference)
        assert match is not None
        name = re.sub(r"[-./:]", "_", image)
        for part, value in zip(("REPO", "TAG", "DIGEST"), match.groups(), strict=True):
            known[f"{{{{.IMAGE_{part}_{name}}}}}"] = value or ""
    templates = {key: known[text] for key, text in found["setValueTemplates"].items()}
    return [
        f"--set={key}={value}" for key, value in [*found["setValues"].items(), *templates.items()]
    ]


def _add(document: Any, path: list[str], value: object) -> None:
    """An operation of JSON patch, `add` of a field."""
    for step in path[:-1]:
        document = document[int(step) if step.isdigit() else step]
    document[path[-1]] = value
