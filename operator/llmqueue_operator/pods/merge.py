"""A user's partial pod template over the operator's, as spec.worker.podTemplate documents it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llmqueue.documents import is_list, is_object

_KEYS: Mapping[str, str] = {
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
}
"""Lists that merge, and the field by which their items are told apart; others replace."""
_REPLACED = frozenset({"env", "volumes"})
"""Their items have one source each: a new one replaces, it does not add."""


def merged(ours: Any, theirs: Any, name: str = "") -> Any:
    """`theirs` over `ours`; None takes a field away. Neither is changed."""
    if is_object(ours) and is_object(theirs):
        result = dict(ours)
        for key, value in theirs.items():
            if value is None:
                result.pop(key, None)
            else:
                result[key] = merged(result[key], value, key) if key in result else value
        return result
    if is_list(ours) and is_list(theirs) and name in _KEYS:
        return _merged_lists(name, ours, theirs)
    return theirs


def _merged_lists(name: str, ours: list[Any], theirs: list[Any]) -> list[Any]:
    """Ours in their order, changed or not, then what is only theirs."""
    key = _KEYS[name]
    changes = {_label(item, key): item for item in theirs}
    known = {_label(item, key) for item in ours}
    kept = [_merged_item(name, item, changes.get(_label(item, key))) for item in ours]
    return kept + [item for item in theirs if _label(item, key) not in known]


def _label(item: Any, key: str) -> str | None:
    """What tells an item from others; None for nonsense, which the API server is to refuse."""
    found = item.get(key) if is_object(item) else None
    return found if isinstance(found, str) else None


def _merged_item(name: str, ours: Any, theirs: Any) -> Any:
    if theirs is None:
        return ours
    return theirs if name in _REPLACED else merged(ours, theirs)
