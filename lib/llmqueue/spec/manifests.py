"""Manifests in files, YAML with several documents or JSON → LLMQueues, or what is to be mended."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from llmqueue.documents import is_list, is_object
from llmqueue.errors import InvalidResource
from llmqueue.spec.convert import queue_id
from llmqueue.spec.documents import read_documents
from llmqueue.spec.explain import explain, unknown_metadata
from llmqueue.spec.resource import API_VERSION, KIND, LLMQueue

_log = logging.getLogger(__name__)
_GROUP = API_VERSION.partition("/")[0]


@dataclass(frozen=True, slots=True)
class _Document:
    """One object of a file; `place` is how a message names it."""

    place: str
    content: dict[str, Any]


def load_manifests(
    paths: Iterable[Path], *, note: Callable[[str], object] = _log.warning
) -> list[LLMQueue]:
    """All LLMQueues of these files, in order.

    Objects of other kinds (a Secret beside its queue) are passed over and told to `note`.
    Raises InvalidResource with a line for everything that is wrong in any of the files, each as
    `file: document N: field: what is wrong`; also where no LLMQueue is left.
    """
    problems: list[str] = []
    queues: dict[str, LLMQueue] = {}
    places: dict[str, str] = {}
    passed_over: list[str] = []
    files = list(paths)
    for document in _documents(files, problems):
        kind = document.content.get("kind")
        if kind != KIND and isinstance(kind, str):
            passed_over.append(f"{document.place}: kind {kind} is passed over")
            continue
        queue = _read(document, problems)
        if queue is None:
            continue
        name = queue_id(queue)
        if name in queues:
            problems.append(
                f"{document.place}: metadata.name: {name} is also in {places[name]}:"
                " each LLMQueue may be there once"
            )
        queues[name], places[name] = queue, document.place
    if not queues and not problems:
        named = ", ".join(map(str, files)) or "no file"
        problems = [*passed_over, f"no {KIND} found in {named}: one is needed"]
    if problems:
        raise InvalidResource("\n".join(problems))
    for text in passed_over:
        note(text)
    return list(queues.values())


def _documents(files: Iterable[Path], problems: list[str]) -> Iterator[_Document]:
    for file in files:
        try:
            contents = read_documents(file)
        except InvalidResource as exc:
            problems.append(str(exc))
            continue
        for number, content in enumerate(contents, start=1):
            place = f"{file}: document {number}"
            if content is None:
                continue
            if not is_object(content):
                problems.append(f"{place}: must be an object with apiVersion, kind, metadata, spec")
                continue
            yield from _items(_Document(place, content))


def _items(document: _Document) -> Iterator[_Document]:
    """A List, as `kubectl get -o yaml` prints it, stands for its items."""
    items: Any = document.content.get("items")
    if document.content.get("kind") not in ("List", f"{KIND}List") or not is_list(items):
        yield document
        return
    for number, item in enumerate(items, start=1):
        yield _Document(f"{document.place}: item {number}", item if is_object(item) else {})


def _read(document: _Document, problems: list[str]) -> LLMQueue | None:
    version = document.content.get("apiVersion")
    if isinstance(version, str) and version.startswith(f"{_GROUP}/") and version != API_VERSION:
        problems.append(
            f"{document.place}: apiVersion: this program reads {API_VERSION}, got {version}"
        )
        return None
    content = _without_nulls(document.content)
    found = [f"{document.place}: {text}" for text in unknown_metadata(content.get("metadata"))]
    queue = None
    try:
        # The status is the operator's to write: in a file it is a left-over of `kubectl get`.
        queue = LLMQueue.model_validate({k: v for k, v in content.items() if k != "status"})
    except ValidationError as exc:
        found += [f"{document.place}: {text}" for text in explain(exc)]
    problems += found
    return None if found else queue


def _without_nulls(value: Any) -> Any:
    """Kubernetes takes `field: null` as not given, whatever the field."""
    if is_object(value):
        return {name: _without_nulls(each) for name, each in value.items() if each is not None}
    if is_list(value):
        return [_without_nulls(each) for each in value]
    return value
