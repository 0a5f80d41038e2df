"""A streamed chat completion put together again in its non-streamed shape."""

from __future__ import annotations

import json
import math
from typing import Any, cast

from llmqueue.documents import is_list
from llmqueue.outcome import Usage
from llmqueue.providers.classify import ErrorBody, error_from_json
from llmqueue.providers.estimate import BYTES_PER_TOKEN
from llmqueue.providers.sse import SseEvent

_DONE = "[DONE]"


def _merge(into: dict[str, Any], delta: dict[str, Any]) -> None:
    """Add a delta: texts are appended, lists of indexed parts (tool calls) merged by index."""
    for name, value in delta.items():
        if name in ("index", "type", "id", "role") or value is None:
            if value is not None:
                into[name] = value
            continue
        known = into.get(name)
        if isinstance(known, str) and isinstance(value, str):
            into[name] = known + value
        elif isinstance(value, dict):
            _merge(into.setdefault(name, {}), cast("dict[str, Any]", value))
        elif is_list(value):
            parts = cast("list[Any]", into.setdefault(name, []))
            for item in value:
                _merge_part(parts, item)
        else:
            into[name] = value


def _merge_part(parts: list[Any], item: Any) -> None:
    if not isinstance(item, dict) or "index" not in item:
        parts.append(item)
        return
    fields = cast("dict[str, Any]", item)
    for part in parts:
        if part.get("index") == fields["index"]:
            _merge(part, fields)
            return
    parts.append(dict(fields))


class OpenAIStream:
    """Implements `StreamAssembler`."""

    def __init__(self) -> None:
        self.finished = False
        self.error: ErrorBody | None = None
        self._head: dict[str, Any] = {}
        self._choices: dict[int, dict[str, Any]] = {}
        self._usage: Any = None
        self._length = 0

    def feed(self, event: SseEvent) -> None:
        if event.data.strip() == _DONE:
            self.finished = bool(self._choices)
            return
        try:
            document = json.loads(event.data)
        except ValueError:
            self.error = ErrorBody((), f"an event that is not JSON: {event.data[:200]}")
            return
        if not isinstance(document, dict):
            return
        chunk = cast("dict[str, Any]", document)
        self.error = error_from_json(chunk) or self.error
        if chunk.get("usage"):
            self._usage = chunk["usage"]
        for name in ("id", "created", "model", "service_tier", "system_fingerprint"):
            if chunk.get(name) is not None:
                self._head[name] = chunk[name]
        for choice in cast("list[Any]", chunk.get("choices") or []):
            if isinstance(choice, dict):
                self._add(cast("dict[str, Any]", choice))

    def _add(self, choice: dict[str, Any]) -> None:
        index = int(choice.get("index") or 0)
        whole = self._choices.setdefault(
            index, {"index": index, "message": {"role": "assistant"}, "finish_reason": None}
        )
        delta = choice.get("delta")
        if isinstance(delta, dict):
            fields = cast("dict[str, Any]", delta)
            self._length += len(str(fields.get("content") or fields.get("tool_calls") or ""))
            _merge(whole["message"], fields)
        if choice.get("finish_reason"):
            whole["finish_reason"] = choice["finish_reason"]
            self.finished = all(c["finish_reason"] for c in self._choices.values())

    def usage(self) -> Usage:
        """What was produced so far, by its length."""
        return Usage(0, math.ceil(self._length / BYTES_PER_TOKEN), estimated=True)

    def document(self) -> bytes:
        whole = {
            **self._head,
            "object": "chat.completion",
            "choices": [self._choices[index] for index in sorted(self._choices)],
        }
        if self._usage:
            whole["usage"] = self._usage
        return json.dumps(whole).encode()
