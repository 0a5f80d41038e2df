"""A streamed chat completion put together again in its non-streamed shape."""

from __future__ import annotations

import json
from typing import Any

from llmqueue.documents import is_list, is_object
from llmqueue.outcome import Usage
from llmqueue.providers.error_body import ErrorBody, error_from_json
from llmqueue.providers.estimate import output_tokens
from llmqueue.providers.fields import index, items, loads, mapping
from llmqueue.providers.sse import SseEvent

_DONE = "[DONE]"
_HEAD = ("id", "created", "model", "service_tier", "system_fingerprint")
_ATOMS = frozenset({"index", "type", "id", "role"})
"""Texts that are repeated, not continued."""


def _merge(into: dict[str, Any], delta: dict[str, Any]) -> None:
    """Add a delta: texts are continued, lists of indexed parts (tool calls) merged by index."""
    for name, value in delta.items():
        if value is None:
            continue
        known = into.get(name)
        if isinstance(value, str) and isinstance(known, str) and name not in _ATOMS:
            into[name] = known + value
        elif is_object(value) and is_object(known):
            _merge(known, value)
        elif is_list(value):
            parts = into[name] = items(known)
            for part in value:
                _merge_part(parts, part)
        else:
            into[name] = value


def _merge_part(parts: list[Any], part: Any) -> None:
    if is_object(part) and "index" in part:
        for known in parts:
            if is_object(known) and known.get("index") == part["index"]:
                _merge(known, part)
                return
        part = dict(part)
    parts.append(part)


class OpenAIStream:
    """Implements `StreamAssembler`."""

    def __init__(self) -> None:
        self.finished = False
        self.error: ErrorBody | None = None
        self._head: dict[str, Any] = {}
        self._choices: dict[int, dict[str, Any]] = {}
        self._usage: dict[str, Any] = {}

    def feed(self, event: SseEvent) -> None:
        if event.data.strip() == _DONE:
            self.finished = bool(self._choices)
            return
        try:
            document = loads(event.data)
        except ValueError:
            self.error = ErrorBody((), f"an event that is not JSON: {event.data[:200]}")
            return
        chunk = mapping(document)
        self.error = error_from_json(chunk)
        self._usage = mapping(chunk.get("usage")) or self._usage
        for name in _HEAD:
            if chunk.get(name) is not None:
                self._head[name] = chunk[name]
        for choice in map(mapping, items(chunk.get("choices"))):
            self._add(choice)

    def _add(self, choice: dict[str, Any]) -> None:
        number = index(choice.get("index"))
        whole = self._choices.setdefault(
            number, {"index": number, "message": {"role": "assistant"}, "finish_reason": None}
        )
        _merge(whole["message"], mapping(choice.get("delta")))
        if choice.get("finish_reason"):
            whole["finish_reason"] = choice["finish_reason"]

    def end(self) -> None:
        """Servers that don't say [DONE] close in order once every choice has its reason."""
        if self._choices and all(c["finish_reason"] for c in self._choices.values()):
            self.finished = True

    def usage(self) -> Usage:
        """What was produced so far, by its length."""
        produced = [choice["message"] for choice in self._choices.values()]
        return Usage(0, output_tokens(*produced), estimated=True)

    def document(self) -> bytes:
        whole = {
            **self._head,
            "object": "chat.completion",
            "choices": [self._choices[number] for number in sorted(self._choices)],
        }
        if self._usage:
            whole["usage"] = self._usage
        return json.dumps(whole).encode()
