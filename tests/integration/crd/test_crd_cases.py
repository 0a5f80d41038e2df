"""The table of good and bad specs, held against the Python models.

The same table is for the API server: what it says of a rule must be what we say.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from integration.crd.cases import CASES, CHANGES, SECRET, Case, Change, document
from llmqueue.errors import InvalidResource
from llmqueue.spec import LLMQueue, load_manifests

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted(
    path for path in (ROOT / "examples").iterdir() if path.suffix in {".yaml", ".yml", ".json"}
)
GOOD = [case for case in CASES if not case.field]
BAD = [case for case in CASES if case.field]


def load(tmp_path: Path, spec: dict[str, Any]) -> LLMQueue:
    file = tmp_path / "queue.json"
    file.write_text(json.dumps(document(spec)))
    (queue,) = load_manifests([file])
    return queue


@pytest.mark.parametrize("case", GOOD, ids=lambda case: case.name)
def test_accepted(case: Case, tmp_path: Path) -> None:
    assert load(tmp_path, case.spec).metadata.name == "case"


@pytest.mark.parametrize("case", BAD, ids=lambda case: case.name)
def test_refused_naming_the_field(case: Case, tmp_path: Path) -> None:
    """Q12, S8, S35 are rows: a drain shorter than the work; min above max, zero and negatives."""
    with pytest.raises(InvalidResource) as caught:
        load(tmp_path, case.spec)
    lines = str(caught.value).splitlines()
    assert any(f"document 1: {case.field}" in line and case.message in line for line in lines)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.name)
def test_changes_are_between_good_resources(change: Change, tmp_path: Path) -> None:
    """What the server refuses of them is the change alone."""
    old, new = load(tmp_path, change.old), load(tmp_path, change.new)
    assert old != new


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples_are_manifests_for_namespace_default(path: Path) -> None:
    for queue in load_manifests([path]):
        assert queue.metadata.namespace == "default"


def test_the_two_examples_that_documents_speak_of() -> None:
    assert {"smallest.yaml", "full.yaml"} <= {path.name for path in EXAMPLES}


def test_the_full_example_sets_every_field() -> None:
    (text,) = yaml.safe_load_all((ROOT / "examples" / "full.yaml").read_text())
    (crd,) = yaml.safe_load_all((ROOT / "crds" / "llmqueues.llmqueue.dev.yaml").read_text())
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert list(missing("spec", schema, text["spec"])) == []


# Alternatives to what the example uses, and what rules refuse.
LEFT_OUT = {
    "spec.worker.env[].valueFrom",
    "spec.worker.podTemplate.spec.terminationGracePeriodSeconds",
    "spec.worker.podTemplate.spec.restartPolicy",
    *(
        f"spec.worker.podTemplate.spec.containers[].{name}"
        for name in (
            "command",
            "args",
            "livenessProbe",
            "readinessProbe",
            "startupProbe",
            "lifecycle",
        )
    ),
}


def missing(path: str, schema: dict[str, Any], value: Any) -> Any:
    for name, field in schema.get("properties", {}).items():
        where = f"{path}.{name}"
        if name not in value:
            if where not in LEFT_OUT:
                yield where
        elif "items" in field:
            yield from missing(f"{where}[]", field["items"], merged(value[name]))
        else:
            yield from missing(where, field, value[name])


def merged(items: list[Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for item in items:
        found |= item if isinstance(item, dict) else {}
    return found
