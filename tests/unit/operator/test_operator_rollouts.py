"""What of an LLMQueue rolls workers out anew, and what never does.

Every field of the CRD is walked and changed: a new one is either in a section whose answer is known
or makes this test fail.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from llmqueue.spec import LLMQueue
from llmqueue_operator.connections import Connections
from llmqueue_operator.pods import worker_deployment

ROOT = Path(__file__).parents[3]
Object = dict[str, Any]

LIVE = ("limits", "retry", "circuitBreaker", "spend", "queue", "scaling")
"""Sections that reach workers through the store."""
ROLLOUT = ("provider", "timeouts", "gracePeriods", "worker", "redis")
LIVE_FIELDS = frozenset(
    {
        "provider.models",  # checked at enqueue
        "timeouts.jobDeadlineSeconds",  # kept by the store
        "redis.durability",  # not served yet
        "redis.connection",  # workerSecretRef goes first; see below
    }
)
ROLLOUT_FIELDS = frozenset({"scaling.slotsPerWorker"})


def _load(name: str) -> Object:
    (found,) = yaml.safe_load_all((ROOT / name).read_text())
    return found


SCHEMA = _load("crds/llmqueues.llmqueue.dev.yaml")["spec"]["versions"][0]["schema"][
    "openAPIV3Schema"
]["properties"]["spec"]
FULL = _load("examples/full.yaml")


def leaves(schema: Object, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Object]]:
    """Every field that holds a value of its own; an object that Kubernetes defines is one."""
    opaque = schema.get("x-kubernetes-preserve-unknown-fields", False)
    if schema.get("properties") and not opaque:
        for name, field in schema["properties"].items():
            yield from leaves(field, (*path, name))
    else:
        yield path, schema


LEAVES = {
    ".".join(path): (path, schema)
    for path, schema in leaves(SCHEMA)
    if len(schema.get("enum", "ab")) > 1  # of one value there is no other
}


def others(value: Any, schema: Object) -> Iterator[Any]:
    """Other values of the same kind; not all of them need be allowed."""
    if schema.get("enum"):
        yield from (each for each in schema["enum"] if each != value)
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (value + 1, value - 1, value // 2)
    elif isinstance(value, str):
        yield from (value + "x", "9", "Europe/Paris", value + ".x")
    elif isinstance(value, list) and schema["items"].get("properties"):
        for name, field in schema["items"]["properties"].items():
            if name in value[0]:
                yield from (
                    [{**value[0], name: o}, *value[1:]] for o in others(value[0][name], field)
                )
    elif isinstance(value, list):
        yield from ([o, *value[1:]] for o in others(value[0], schema["items"]))
    elif isinstance(value, dict):
        for name, inner in value.items():
            field = schema.get("properties", {}).get(name) or _opaque(inner)
            yield from ({**value, name: other} for other in others(inner, field))


def _opaque(value: Any) -> Object:
    return {"items": _opaque(value[0])} if isinstance(value, list) else {}


def resource(spec: Object) -> LLMQueue:
    meta = {"name": "full", "namespace": "default", "uid": "u"}
    return LLMQueue.model_validate({**FULL, "metadata": meta, "spec": spec})


def changed(name: str) -> LLMQueue:
    """The full example with another allowed value in one field."""
    path, schema = LEAVES[name]
    spec = copy.deepcopy(FULL["spec"])
    parent = spec
    for step in path[:-1]:
        parent = parent[step]
    assert path[-1] in parent, f"examples/full.yaml lacks spec.{name}"
    for other in others(parent[path[-1]], schema):
        parent[path[-1]] = other
        try:
            return resource(spec)
        except ValidationError:
            continue
    raise AssertionError(f"no other value found for spec.{name}: teach `others` about it")


@pytest.fixture
def connections(tmp_path: Path) -> Connections:
    for name in ("default", "defaultx"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "url").write_text(f"redis://{name}:6379/0")
    return Connections(tmp_path)


def template(queue: LLMQueue, connections: Connections) -> str:
    document = worker_deployment(
        queue, image="w:1", pull_policy="Always", redis=connections.worker_redis(queue)
    )
    return json.dumps(document["spec"]["template"], sort_keys=True)


def test_every_section_has_an_answer() -> None:
    assert set(SCHEMA["properties"]) == {*LIVE, *ROLLOUT}
    assert LEAVES.keys() >= LIVE_FIELDS | ROLLOUT_FIELDS
    assert len(LEAVES) > 70


def rolls_out(name: str) -> bool:
    return name in ROLLOUT_FIELDS or (
        name.split(".", maxsplit=1)[0] in ROLLOUT and name not in LIVE_FIELDS
    )


@pytest.mark.parametrize("name", [name for name in LEAVES if not rolls_out(name)])
def test_a_change_that_leaves_every_pod_alone(name: str, connections: Connections) -> None:
    """A new limit must not replace busy workers: it reaches them through the store."""
    other = changed(name)
    assert other != resource(FULL["spec"])
    assert template(other, connections) == template(resource(FULL["spec"]), connections)


@pytest.mark.parametrize("name", [name for name in LEAVES if rolls_out(name)])
def test_a_change_that_workers_must_follow(name: str, connections: Connections) -> None:
    """S52: it takes a rollout, in which the old ones drain."""
    assert template(changed(name), connections) != template(resource(FULL["spec"]), connections)


@pytest.mark.parametrize("section", LIVE)
def test_a_live_section_left_out_altogether(section: str, connections: Connections) -> None:
    spec = copy.deepcopy(FULL["spec"])
    spec[section] = {"limits": {"maxInFlight": 1}, "scaling": {"slotsPerWorker": 8}}.get(
        section, {}
    )
    spec[section] |= {"sharedBudget": {"name": "openai-gpt-4o"}} if section == "limits" else {}
    assert template(resource(spec), connections) == template(resource(FULL["spec"]), connections)


def test_another_connection(connections: Connections) -> None:
    def on(name: str) -> LLMQueue:
        return resource({**FULL["spec"], "redis": {"connection": name}})

    assert "redis://defaultx:6379/0" in template(on("defaultx"), connections)
    assert template(on("default"), connections) != template(on("defaultx"), connections)
