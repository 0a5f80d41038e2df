"""Validation errors → sentences: which field, what is wrong, how to mend it."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from functools import cache
from types import UnionType
from typing import Annotated, Any, Union, cast, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from llmqueue.documents import is_object
from llmqueue.spec.fields import BASE_URL_PATTERN, BROKEN_RULES, SHAPES, Problem
from llmqueue.spec.resource import LLMQueue

_SHOWN = 60
_TYPES = {
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "bool_type": "must be true or false",
    "string_type": "must be text",
    "tuple_type": "must be a list",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
}
_METADATA = (
    "name",
    "generateName",
    "namespace",
    "labels",
    "annotations",
    "finalizers",
    "ownerReferences",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "selfLink",
)


def explain(error: ValidationError) -> Iterator[str]:
    """A line `field: what is wrong` for each error."""
    for detail in error.errors(include_url=False):
        path = _path(detail["loc"])
        if detail["type"] == BROKEN_RULES:
            broken: tuple[Problem, ...] = detail.get("ctx", {})["problems"]
            for problem in broken:
                yield f"{'.'.join(filter(None, (path, problem.field)))}: {problem.message}"
        else:
            yield f"{path or 'resource'}: {_what(detail)}"


def unknown_metadata(metadata: object) -> Iterator[str]:
    """Lines for names that Kubernetes' metadata does not have."""
    if is_object(metadata):
        for name in metadata:
            if name not in _METADATA:
                yield f"metadata.{name}: unknown field{_did_you_mean(str(name), _METADATA)}"


def _path(location: tuple[int | str, ...]) -> str:
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.removeprefix(".")


def _what(detail: ErrorDetails) -> str:
    kind, ctx = detail["type"], cast("Mapping[str, Any]", detail.get("ctx", {}))
    if kind == "missing":
        return "is required"
    if kind == "extra_forbidden":
        return _unknown(detail["loc"])
    got = f", got {_shown(detail['input'])}"
    if kind in _TYPES:
        return _TYPES[kind] + got
    match kind:
        case "greater_than_equal":
            return f"must be ≥ {ctx['ge']}{got}"
        case "less_than_equal":
            return f"must be ≤ {ctx['le']}{got}"
        case "literal_error" | "enum":
            choices = str(ctx["expected"]).replace("'", "").replace(" or ", ", ").split(", ")
            meant = _did_you_mean(str(detail["input"]), choices)
            one_of = "one of " if len(choices) > 1 else ""
            return f"must be {one_of}{', '.join(choices)}{got}{meant}"
        case "string_pattern_mismatch":
            shape = f"must be {SHAPES[ctx['pattern']]}"
            # A URL may hold a secret, in its query too.
            return shape if ctx["pattern"] == BASE_URL_PATTERN else shape + got
        case "string_too_long":
            return f"must have at most {ctx['max_length']} characters{got}"
        case "string_too_short":
            return "must not be empty"
        case "too_long":
            return f"must have at most {ctx['max_length']} items, got {ctx['actual_length']}"
        case "too_short":
            return f"must have at least {ctx['min_length']} items, got {ctx['actual_length']}"
        case "value_error":
            return f"{ctx['error']}{got if isinstance(detail['input'], str | float | int) else ''}"
        case _:
            return detail["msg"] + got


def _shown(value: object) -> str:
    text = f'"{value}"' if isinstance(value, str) else str(value)
    if isinstance(value, bool):
        text = text.lower()
    text = text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
    # Half a character from an escape sequence could not be printed.
    return text.encode(errors="backslashreplace").decode()


def _did_you_mean(name: str, known: Iterator[str] | tuple[str, ...] | list[str]) -> str:
    by_lower = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return f": did you mean {by_lower[near[0]]}?" if near else ""


def _unknown(location: tuple[int | str, ...]) -> str:
    """Nearest name in the same object, else the place where a field of this name belongs."""
    name, parent = str(location[-1]), tuple(part for part in location[:-1] if isinstance(part, str))
    known = [path[-1] for path in _known_paths() if path[:-1] == parent]
    if meant := _did_you_mean(name, known):
        return f"unknown field{meant}"
    elsewhere = [path for path in _known_paths() if path[-1] == name]
    if elsewhere:
        return f"unknown field: it belongs to {'.'.join(elsewhere[0][:-1])}"
    return f"unknown field: known are {', '.join(sorted(known))}"


@cache
def _known_paths() -> tuple[tuple[str, ...], ...]:
    """The path of every field of the resource, without the indices of lists."""
    return tuple(_paths(LLMQueue, ()))


def _paths(model: type[BaseModel], parent: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for name, field in model.model_fields.items():
        path = (*parent, field.alias or name)
        if path == ("status",):
            continue
        yield path
        for inner in _models(field.annotation):
            yield from _paths(inner, path)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models that an annotation speaks of: itself, in unions, lists and Annotated."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif get_origin(annotation) in (Union, UnionType, tuple, Annotated):
        for part in get_args(annotation):
            yield from _models(part)
