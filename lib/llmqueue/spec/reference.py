"""The CRD → docs/reference/llmqueue.md: `python -m llmqueue.spec.reference` in the project root."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from llmqueue.spec.documents import read_documents

CRD = Path("crds/llmqueues.llmqueue.dev.yaml")
REFERENCE = Path("docs/reference/llmqueue.md")
Schema = dict[str, Any]

_HEAD = """\
# LLMQueue

<!-- Generated from {source} by python -m llmqueue.spec.reference: change the CRD. -->

`{api_version}`, namespaced; short name `{short}`, category `{category}`. Times are whole units that
the field's name ends with, money is a decimal string in quotes. A field without a default is off
until it is set. `kubectl explain llmqueue.spec` says the same; [examples](../../examples/) show it.

{description}
"""


def render(crd: Schema) -> str:
    """The whole page."""
    spec = crd["spec"]
    names, version = spec["names"], spec["versions"][0]
    root: Schema = version["schema"]["openAPIV3Schema"]
    head = _HEAD.format(
        source=CRD,
        api_version=f"{spec['group']}/{version['name']}",
        short=names["shortNames"][0],
        category=names["categories"][0],
        description=root["description"],
    )
    parts = [head]
    for name in ("spec", "status"):
        parts += _objects(name, root["properties"][name])
    return "\n".join(parts)


def _objects(path: str, schema: Schema) -> Iterator[str]:
    """A chapter for the object and for each object below it."""
    fields: Schema = schema["properties"]
    yield f"## {path}\n\n{schema.get('description', '')}\n"
    yield "| field | type | default | |\n|---|---|---|---|"
    required = schema.get("required", [])
    for name, field in fields.items():
        yield _row(name, field, is_required=name in required)
    yield ""
    if rules := schema.get("x-kubernetes-validations"):
        yield "Refused otherwise:\n"
        for rule in rules:
            yield f"- `{rule['fieldPath'].removeprefix('.')}` {rule['message']}"
        yield ""
    for name, field in fields.items():
        inner: Schema = field.get("items", field)
        if "properties" in inner:
            suffix = "[]" if "items" in field else ""
            described = {"description": field["description"], **inner}
            yield from _objects(f"{path}.{name}{suffix}", described)


def _row(name: str, field: Schema, *, is_required: bool) -> str:
    default = "required" if is_required else ""
    if "default" in field and field["default"] != {}:
        default = f"`{json.dumps(field['default'])}`"
    cells = [f"`{name}`", _type(field), default, field["description"]]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _type(field: Schema) -> str:
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if "items" in field:
        return f"list of {_type(field['items'])}, at most {field['maxItems']}"
    kind = "time" if field.get("format") == "date-time" else field["type"]
    lowest, highest = field.get("minimum"), field.get("maximum")
    if highest is not None:
        return f"{kind}, {lowest}–{highest}"
    return f"{kind}, ≥ {lowest}" if lowest is not None else str(kind)


def main() -> None:
    (crd,) = read_documents(CRD)
    REFERENCE.parent.mkdir(parents=True, exist_ok=True)
    REFERENCE.write_text(render(crd), encoding="utf-8")


if __name__ == "__main__":
    main()
