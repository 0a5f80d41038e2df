"""Guards for documents that came from outside: both type checkers agree on guards, not on casts."""

from __future__ import annotations

from typing import Any, TypeGuard


def is_object(value: object) -> TypeGuard[dict[str, Any]]:
    """A JSON object; its keys are strings."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[Any]]:
    """A JSON array."""
    return isinstance(value, list)
