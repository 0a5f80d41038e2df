"""A streamed message put together again in its non-streamed shape."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from llmqueue.outcome import Usage
from llmqueue.providers.error_body import ErrorBody, error_from_json
from llmqueue.providers.estimate import output_tokens
from llmqueue.providers.fields import count, index, items, loads, mapping
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
    hour = count(usage, "cache_creation", "ephemeral_1h_input_tokens") or 0
    return Usage(
        fresh + written + read,
        produced,
        cached_tokens=read,
        cache_write_tokens=written,
        cache_write_1h_tokens=min(hour, written),
    )


class AnthropicStream:
    """Implements `StreamAssembler`."""

    def __init__(self) -> None:
        self.finished = False
        self.error: ErrorBody | None = None
        self._message: dict[str, Any] = {}
        self._blocks: dict[int, dict[str, Any]] = {}
        self._usage: dict[str, Any] = {}
        self._produced: list[str] = []

    def feed(self, event: SseEvent) -> None:
        try:
            fields = mapping(loads(event.data))
        except ValueError:
            self.error = ErrorBody((), f"an event that is not JSON: {event.data[:200]}")
            return
        kind = fields.get("type") or event.name
        if kind == "error":
            self.error = error_from_json(fields) or ErrorBody((), "an error event")
        elif kind == "message_start":
            self._message = dict(mapping(fields.get("message")))
            self._usage.update(mapping(self._message.get("usage")))
        elif kind == "content_block_start":
            block = mapping(fields.get("content_block"))
            self._blocks[index(fields.get("index"))] = dict(block)
        elif kind == "content_block_delta":
            self._add(index(fields.get("index")), mapping(fields.get("delta")))
        elif kind == "message_delta":
            self._message.update(mapping(fields.get("delta")))
            # Cumulative, not a difference.
            self._usage.update(mapping(fields.get("usage")))
        elif kind == "message_stop":
            self.finished = bool(self._message)

    def _add(self, number: int, delta: dict[str, Any]) -> None:
        block = self._blocks.setdefault(number, {"type": "text", "text": ""})
        citation = delta.get("citation")
        if citation is not None:
            block["citations"] = [*items(block.get("citations")), citation]
        name = _DELTA_TEXTS.get(str(delta.get("type")))
        text = delta.get(name) if name else None
        if name is None or not isinstance(text, str):
            return
        self._produced.append(text)
        known = block.get(name)
        block[name] = known + text if isinstance(known, str) else text

    def end(self) -> None:
        """Only `message_stop` ends a message."""

    def usage(self) -> Usage:
        """What was used so far: the input as reported, the output by its length at least."""
        known = usage_of({"output_tokens": 0, **self._usage}) or Usage(0, 0)
        produced = max(known.output_tokens, output_tokens(*self._produced))
        return replace(known, output_tokens=produced, estimated=True)

    def document(self) -> bytes:
        content = [_whole(self._blocks[number]) for number in sorted(self._blocks)]
        return json.dumps({**self._message, "content": content, "usage": self._usage}).encode()


def _whole(block: dict[str, Any]) -> dict[str, Any]:
    """A block whose input came as pieces of JSON text, with the input as it is."""
    if "partial_json" not in block:
        return block
    done = {name: value for name, value in block.items() if name != "partial_json"}
    try:
        done["input"] = loads(block["partial_json"] or "{}")
    except ValueError:
        # max_tokens may end a tool's input in its middle: kept as text rather than lost.
        done["input"] = {"partial_json": block["partial_json"]}
    return done
