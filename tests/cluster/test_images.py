"""The images as they were built: what they say of themselves, and what they list."""

from __future__ import annotations

import importlib.metadata
import json
import tarfile
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from cluster.bench import Kube
from cluster.bench.given import IMAGES, node
from cluster.tool import image_layout

_BILL = "usr/share/doc/llmqueue/sbom.cdx.json"
# Packages that are in it, and some that are in another only.
_PACKAGES = {
    "operator": ({"kopf", "redis"}, {"uvloop", "typer"}),
    "worker": ({"uvloop", "redis"}, {"kopf", "typer"}),
    "cli": ({"typer", "uvloop", "redis"}, {"kopf"}),
}


def _bill(image: str) -> dict[str, Any]:
    for layer in reversed(image_layout.layers(image)):
        with tarfile.open(layer) as content:
            for name in (_BILL, f"./{_BILL}"):
                if name in content.getnames():
                    file = content.extractfile(name)
                    assert file is not None
                    return dict(json.loads(file.read()))
    pytest.fail(f"{image} has no {_BILL}")


@pytest.mark.parametrize("target", _PACKAGES)
async def test_an_image_says_what_it_is_and_what_is_in_it(kube: Kube, target: str) -> None:
    node()
    image = f"{IMAGES}/{target}:dev"
    said = image_layout.configuration(image)
    labels = {key.rpartition(".")[2]: text for key, text in said["Labels"].items()}
    assert labels["title"] == f"llmqueue-{target}"
    assert labels.keys() >= {"description", "licenses", "version", "revision"}
    assert said["User"] == "65532:65532"

    bill = _bill(image)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(bill)) is None
    itself = bill["metadata"]["component"]
    version = importlib.metadata.version("llmqueue")
    assert (itself["name"], itself["version"]) == ("llmqueue", version)
    names = {each["name"] for each in bill["components"]}
    there, elsewhere = _PACKAGES[target]
    assert there <= names
    # What made the list is not in the image either.
    assert not names & {*elsewhere, "cyclonedx-bom"}
