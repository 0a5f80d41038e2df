"""A streamed message put together again in its non-streamed shape."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, cast

from llmqueue.outcome import Usage
from llmqueue.providers.answer import count
from llmqueue.providers.classify import ErrorBody, error_from_json
from llmqueue.providers.estimate import BYTES_PER_TOKEN
from llmqueue.providers.sse import SseEvent

_DELTA_TEXTS = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "input_json_delta": "partial_json",
}


def usage_of(usage: Mapping[str, Any]) -> Usage | None:
    """Tokens of a message: `input_tokens` excludes cache writes and reads, our total includes
    them. None where the counts are missing."""
    fresh, produced = count(usage, "input_tokens"), count(usage, "output_tokens")
    if fresh is None or produced is None:
        return None
    written = count(usage, "cache_creation_input_tokens") or 0
    read = count(usage, "cache_read_input_tokens") or 0
    return Usage(fresh + written + read, produced, cached_tokens=read, cache_write_tokens=written)


class AnthropicStream:
    """Implements `StreamAssembler`."""

    def __init__(self) -> None:
        self.finished = False
        self.error: ErrorBody | None = None
        self._message: dict[str, Any] = {}
        self._blocks: dict[int, dict[str, Any]] = {}
        self._usage: dict[str, Any] = {}
        self._length = 0

    def feed(self, event: SseEvent) -> None:
        try:
            document = json.loads(event.data)
        except ValueError:
            self.error = ErrorBody((), f"an event that is not JSON: {event.data[:200]}")
            return
        if not isinstance(document, dict):
            return
        fields = cast("dict[str, Any]", document)
        kind = str(fields.get("type") or event.name)
        if kind == "error":
            self.error = error_from_json(fields) or ErrorBody((), "an error event")
        elif kind == "message_start":
            self._message = dict(fields.get("message") or {})
            self._usage.update(self._message.get("usage") or {})
        elif kind == "content_block_start":
            block = cast("dict[str, Any]", fields.get("content_block") or {})
            self._blocks[int(fields.get("index") or 0)] = dict(block)
        elif kind == "content_block_delta":
            self._add(int(fields.get("index") or 0), fields.get("delta") or {})
        elif kind == "message_delta":
            self._message.update(fields.get("delta") or {})
            # Cumulative, not a difference.
            self._usage.update(fields.get("usage") or {})
        elif kind == "message_stop":
            self.finished = bool(self._message)

    def _add(self, index: int, delta: dict[str, Any]) -> None:
        name = _DELTA_TEXTS.get(str(delta.get("type")))
        if name is None:
            return
        text = str(delta.get(name) or "")
        self._length += len(text)
        block = self._blocks.setdefault(index, {"type": "text", "text": ""})
        block[name] = str(block.get(name) or "") + text

    def usage(self) -> Usage:
        """What was used so far: the input as reported, the output by its length at least."""
        known = usage_of({"output_tokens": 0, **self._usage})
        by_length = math.ceil(self._length / BYTES_PER_TOKEN)
        if known is None:
            return Usage(0, by_length, estimated=True)
        return Usage(
            known.input_tokens,
            max(known.output_tokens, by_length),
            cached_tokens=known.cached_tokens,
            cache_write_tokens=known.cache_write_tokens,
            estimated=True,
        )

    def document(self) -> bytes:
        content: list[dict[str, Any]] = []
        for index in sorted(self._blocks):
            block = dict(self._blocks[index])
            partial = block.pop("partial_json", None)
            if partial is not None:
                try:
                    block["input"] = json.loads(partial or "{}")
                except ValueError:
                    block["input"] = {}
            content.append(block)
        return json.dumps({**self._message, "content": content, "usage": self._usage}).encode()
