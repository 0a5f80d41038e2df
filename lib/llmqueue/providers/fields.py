"""Narrowing JSON that anybody may have written: a wrong type reads as nothing."""

from __future__ import annotations

import json
from typing import Any

from llmqueue.documents import is_list, is_object

_MOST_TOKENS = 10**12
"""More than any call can have used: what claims more is no count."""


def loads(text: str | bytes) -> Any:
    """The JSON in a text, bytes as UTF-8 with or without a byte-order mark.

    Raises ValueError for everything that is none, too deep and not UTF-8 included.
    """
    try:
        return json.loads(text if isinstance(text, str) else text.decode("utf-8-sig"))
    except RecursionError as exc:
        raise ValueError("nested too deeply") from exc


def mapping(value: Any) -> dict[str, Any]:
    """An object, or an empty one."""
    return value if is_object(value) else {}


def items(value: Any) -> list[Any]:
    """A list, or an empty one."""
    return value if is_list(value) else []


def text(value: Any, *, most: int = 200) -> str:
    """A string cut to `most` characters, or an empty one."""
    return value[:most] if isinstance(value, str) else ""


def index(value: Any) -> int:
    """A position in a list, 0 where there is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0


def count(fields: Any, *path: str) -> int | None:
    """A non-negative whole number at a path, None where it is missing or something else."""
    value: Any = fields
    for name in path:
        value = mapping(value).get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST_TOKENS:
        return None
    return value


def has_field(value: Any, name: str) -> bool:
    """Whether any object within a JSON value, however deep, has the field."""
    pending = [value]
    while pending:
        one = pending.pop()
        if is_object(one):
            if name in one:
                return True
            pending += one.values()
        elif is_list(one):
            pending += one
    return False
