"""skaffold.yaml: valid by Skaffold's own schema, and what it would deploy.

Helm renders with the values that Skaffold would set; that these are the ones is compared with the
real program in test_skaffold_soak.py.
"""

from __future__ import annotations

import copy
import json
import re
from typing import Any

import jsonschema
import pytest
import yaml

from cluster.tool import skaffold
from cluster.tool.errors import Incapable
from support.checkout import ROOT
from support.leftout import leave_out
from support.rendering import rendered
from support.skaffolding import IMAGES, SKAFFOLD, release, values

Object = dict[str, Any]


@pytest.fixture(scope="module")
def schema() -> Object:
    version = SKAFFOLD["apiVersion"].removeprefix("skaffold/")
    try:
        return dict(json.loads(skaffold.schema(version).read_text()))
    except Incapable as exc:
        leave_out(exc)


def deployed(profile: str | None = None) -> list[Object]:
    found = release(profile)
    return rendered(*values(found), release=found["name"], namespace=found["namespace"])


def named(objects: list[Object], kind: str, name: str) -> Object:
    (found,) = [
        each for each in objects if (each["kind"], each["metadata"]["name"]) == (kind, name)
    ]
    return found


def operator(objects: list[Object]) -> Object:
    return dict(named(objects, "Deployment", "llmqueue-operator")["spec"])


@pytest.mark.timeout(600)  # a new machine fetches Go and Skaffold's sources
def test_it_is_valid(schema: Object) -> None:
    jsonschema.validate(SKAFFOLD, schema)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("path", "wrong"),
    [
        (("build", "artifacts", 0, "docker", "targets"), "operator"),
        (("deploy", "helm", "releases", 0, "setValueTemplate"), {}),
        (("portForward", 0, "resourceKind"), "service"),
        (("profiles", 0, "activations"), []),
    ],
    ids=lambda value: str(value[-1]) if isinstance(value, tuple) else "",
)
def test_a_field_that_does_not_exist_is_noticed(
    schema: Object, path: tuple[str | int, ...], wrong: object
) -> None:
    broken = copy.deepcopy(SKAFFOLD)
    place: Any = broken
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = wrong
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(broken, schema)


def test_it_builds_images_of_the_dockerfile() -> None:
    targets = re.findall(r"^FROM runtime AS (\w+)$", (ROOT / "Dockerfile").read_text(), re.M)
    built = {each["image"]: each["docker"]["target"] for each in SKAFFOLD["build"]["artifacts"]}
    assert built == {"llmqueue-operator": "operator", "llmqueue-worker": "worker"}
    assert set(built.values()) <= set(targets)


def test_the_built_images_are_deployed() -> None:
    """The worker's too, which is in no pod of the chart but in a setting of the operator."""
    (container,) = operator(deployed())["template"]["spec"]["containers"]
    environment = {each["name"]: each.get("value") for each in container["env"]}
    assert (
        container["image"]
        == "registry.example/team/llmqueue-operator@"
        + IMAGES["llmqueue-operator"].rpartition("@")[2]
    )
    assert environment["LLMQUEUE_OPERATOR_WORKER_IMAGE"] == "llmqueue-worker:5d1"


def test_only_images_differ_from_the_chart_s_own_defaults() -> None:
    ours, theirs = deployed(), rendered(release="llmqueue", namespace="llmqueue")
    text = yaml.safe_dump_all(theirs)
    text = text.replace("llmqueue/operator:", "OPERATOR:").replace("llmqueue/worker:", "WORKER:")
    for image in ("OPERATOR", "WORKER"):
        text = re.sub(rf"{image}:[\d.]+", image, text)
    mine = yaml.safe_dump_all(ours)
    mine = re.sub(r"registry\.example/team/llmqueue-operator@sha256:\w+", "OPERATOR", mine)
    assert mine.replace("llmqueue-worker:5d1", "WORKER") == text


@pytest.mark.parametrize("forward", SKAFFOLD["portForward"], ids=lambda each: each["resourceName"])
def test_a_forwarded_port_is_there(forward: Object) -> None:
    service = named(deployed(), "Service", forward["resourceName"])
    assert forward["resourceType"] == "service"
    assert forward["namespace"] == service["metadata"]["namespace"]
    assert forward["port"] in [port["port"] for port in service["spec"]["ports"]]


def test_a_developer_has_one_operator_and_reads_its_log() -> None:
    spec = operator(deployed("dev"))
    (container,) = spec["template"]["spec"]["containers"]
    environment = {each["name"]: each.get("value") for each in container["env"]}
    assert spec["replicas"] == 1
    assert environment["LLMQUEUE_OPERATOR_LOG_FORMAT"] == "console"
    assert environment["LLMQUEUE_OPERATOR_LOG_LEVEL"] == "debug"


def test_the_developer_s_profile_is_that_of_skaffold_dev() -> None:
    (profile,) = SKAFFOLD["profiles"]
    assert (profile["name"], profile["activation"]) == ("dev", [{"command": "dev"}])
