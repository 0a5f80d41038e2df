"""Guards for documents that came from outside: both type checkers agree on guards, not on casts."""

from __future__ import annotations

from typing import Any, TypeGuard


def is_object(value: object) -> TypeGuard[dict[str, Any]]:
    """A JSON object; its keys are strings."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[Any]]:
    """A JSON array."""
    return isinstance(value, list)


def object_at(value: Any, *path: str) -> dict[str, Any]:
    """The object at a path of names; an empty one where there is none."""
    for name in path:
        value = value.get(name) if is_object(value) else None
    return value if is_object(value) else {}


def objects_at(value: Any, *path: str) -> list[dict[str, Any]]:
    """The objects of the list at a path of names; none where there is no list."""
    found = object_at(value, *path[:-1]).get(path[-1])
    return [item for item in found if is_object(item)] if is_list(found) else []
