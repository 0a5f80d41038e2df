"""The CRD and the Python models are two writings of one thing: both are walked and compared."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from integration.crd.cases import CASES, CHANGES
from llmqueue.spec import LLMQueue
from llmqueue.spec.fields import SHAPES
from llmqueue.spec.reference import render
from llmqueue_operator.planning import BoundBy

ROOT = Path(__file__).parents[3]
Schema = dict[str, Any]

COMPARED = (
    "enum",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "pattern",
    "minItems",
    "maxItems",
    "maxProperties",
    "format",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
)


@pytest.fixture(scope="module")
def crd() -> Schema:
    (loaded,) = yaml.safe_load_all((ROOT / "crds" / "llmqueues.llmqueue.dev.yaml").read_text())
    return loaded


@pytest.fixture(scope="module")
def root(crd: Schema) -> Schema:
    return crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def declared(path: str, schema: Schema) -> Iterator[tuple[str, Schema]]:
    """Every field of the CRD: path → what is compared."""
    for name, field in schema.get("properties", {}).items():
        where = f"{path}.{name}"
        facts = {key: field[key] for key in COMPARED if key in field and field[key] != "int64"}
        kind = "any" if "x-kubernetes-int-or-string" in field else field["type"]
        yield where, {**facts, "type": kind, "required": name in schema.get("required", [])}
        yield from declared(where, field)
        if "items" in field:
            items = {"properties": {"[]": field["items"]}}
            yield from declared(where, items)


def modelled(path: str, schema: Schema, definitions: Schema) -> Iterator[tuple[str, Schema]]:
    """The same of pydantic's JSON schema."""
    for name, raw in schema.get("properties", {}).items():
        where = f"{path}.{name}"
        field = resolved(raw, definitions)
        facts = {key: field[key] for key in COMPARED if key in field}
        if isinstance(field.get("const"), str):
            facts["enum"] = [field["const"]]
        yield (
            where,
            {**facts, "type": field["type"], "required": name in schema.get("required", [])},
        )
        yield from modelled(where, field, definitions)
        if "items" in field:
            items = {"properties": {"[]": field["items"]}}
            yield from modelled(where, items, definitions)


def resolved(field: Schema, definitions: Schema) -> Schema:
    """Without `| None` and references."""
    if "anyOf" in field:
        (only,) = [each for each in field["anyOf"] if each != {"type": "null"}]
        field = {**field, **only}
    if "$ref" in field:
        field = {**field, **definitions[field["$ref"].rpartition("/")[2]]}
    return field


@pytest.mark.parametrize("part", ["spec", "status"])
def test_fields_bounds_and_lists_of_values_agree(root: Schema, part: str) -> None:
    schema = LLMQueue.model_json_schema(by_alias=True)
    definitions = schema["$defs"]
    ours = resolved(schema["properties"][part], definitions)
    theirs = dict(declared(part, root["properties"][part]))
    assert dict(modelled(part, ours, definitions)) == theirs
    assert len(theirs) > 25


def with_defaults(schema: Schema, value: Schema) -> Schema:
    """What an API server stores of a value."""
    filled = dict(value)
    for name, field in schema.get("properties", {}).items():
        if name not in filled and "default" in field:
            filled[name] = field["default"]
        if isinstance(filled.get(name), dict):
            filled[name] = with_defaults(field, filled[name])
    return filled


def test_defaults_agree(root: Schema) -> None:
    given: Schema = {
        "provider": {"type": "openai", "credentialsSecretRef": {"name": "x"}},
        "limits": {"requestsPerMinute": 1, "sharedBudget": {"name": "x"}},
        "redis": {"workerSecretRef": {"name": "x"}},
    }
    queue = LLMQueue.model_validate(
        {
            "apiVersion": "llmqueue.dev/v1alpha1",
            "kind": "LLMQueue",
            "metadata": {"name": "a"},
            "spec": given,
        }
    )
    ours = queue.spec.model_dump(mode="json", by_alias=True, exclude_none=True)
    assert ours == with_defaults(root["properties"]["spec"], given)


def rules(path: str, schema: Schema) -> Iterator[tuple[str, str]]:
    """Field and message of every CEL rule."""
    for rule in schema.get("x-kubernetes-validations", []):
        yield path + rule["fieldPath"], rule["message"]
    for name, field in schema.get("properties", {}).items():
        yield from rules(f"{path}.{name}", field)
        if "items" in field:
            yield from rules(f"{path}.{name}[0]", field["items"])


def test_every_rule_has_a_case_that_breaks_it(root: Schema) -> None:
    """Those cases show that the models refuse the same with the same words."""
    broken = {(case.field, case.message) for case in (*CASES, *CHANGES) if case.message}
    assert set(rules("spec", root["properties"]["spec"])) == broken


def test_every_object_with_a_rule_or_a_default_below_is_there_without_being_given(
    root: Schema,
) -> None:
    """Otherwise a rule fails with "no such key" on the smallest resource."""

    def bare(path: str, schema: Schema) -> Iterator[str]:
        for name, field in schema.get("properties", {}).items():
            below = field.get("properties", {})
            if below and "required" not in field:
                if field.get("default") != {} and any("default" in each for each in below.values()):
                    yield f"{path}.{name}"
                yield from bare(f"{path}.{name}", field)

    assert list(bare("spec", root["properties"]["spec"])) == []


def test_every_default_keeps_the_rules_of_its_own_level(root: Schema) -> None:
    """A server checks a default without those below it: only a rule on a change holds for `{}`."""

    def early(path: str, schema: Schema) -> Iterator[str]:
        for name, field in schema.get("properties", {}).items():
            where, rules = f"{path}.{name}", field.get("x-kubernetes-validations", ())
            if "default" in field and not all("oldSelf" in each["rule"] for each in rules):
                yield where
            yield from early(where, field.get("items", field))

    assert list(early("spec", root["properties"]["spec"])) == []


def test_every_field_is_described(root: Schema) -> None:
    def silent(path: str, schema: Schema) -> Iterator[str]:
        for name, field in schema.get("properties", {}).items():
            if len(field.get("description", "")) < 5:
                yield f"{path}.{name}"
            yield from silent(f"{path}.{name}", field.get("items", field))

    properties = root["properties"]
    assert [*silent("spec", properties["spec"]), *silent("status", properties["status"])] == []


def test_every_pattern_can_be_said_in_words() -> None:
    schema = LLMQueue.model_json_schema(by_alias=True)
    fields = modelled("", schema, schema["$defs"])
    used = {facts["pattern"] for _, facts in fields if "pattern" in facts}
    assert len(used) > 5
    assert used <= set(SHAPES)


def test_names_columns_and_status(crd: Schema) -> None:
    names, version = crd["spec"]["names"], crd["spec"]["versions"][0]
    assert (names["shortNames"], names["categories"]) == (["llmq"], ["llm"])
    assert crd["spec"]["scope"] == "Namespaced"
    # No scale subresource: an absent replicas path is a 500 to an autoscaler.
    assert version["subresources"] == {"status": {}}
    columns = [column["name"] for column in version["additionalPrinterColumns"]]
    assert columns == [
        "Ready",
        "Desired",
        "Workers",
        "Ready jobs",
        "In flight",
        "Bound by",
        "ETA",
        "Age",
    ]


def test_columns_show_fields_that_exist(crd: Schema, root: Schema) -> None:
    known = {where for where, _ in declared("status", root["properties"]["status"])}
    for column in crd["spec"]["versions"][0]["additionalPrinterColumns"]:
        path = column["jsonPath"].partition("[")[0].removeprefix(".")
        assert path in known or path == "metadata.creationTimestamp"


def test_bound_by_is_the_planner_s(root: Schema) -> None:
    shown = root["properties"]["status"]["properties"]["boundBy"]["enum"]
    assert shown == [str(each) for each in BoundBy]


def test_the_reference_is_up_to_date(crd: Schema) -> None:
    """Red? Run `python -m llmqueue.spec.reference`."""
    assert (ROOT / "docs" / "reference" / "llmqueue.md").read_text() == render(crd)
