"""Tokens before a call: UTF-8 length of texts, media by the provider's rule.

The store scales the input by a ratio learned per queue; here only the raw guess is made.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from llmqueue.documents import is_list, is_object
from llmqueue.providers.fields import items, loads, mapping
from llmqueue.providers.media import MediaRule, openai_media

BYTES_PER_TOKEN = 4
_MESSAGE_OVERHEAD_TOKENS = 4
_TEXT_FIELDS = ("system", "tools", "functions", "response_format")
"""Parts of a request that the model reads beside the messages."""


@dataclass(frozen=True, slots=True)
class InputSize:
    """Tokens of a request's input: what to expect, and at most (a byte of text is a token); the
    bound is None where media of unknown length are named."""

    tokens: int
    bound: int | None


def text_bytes(value: Any) -> int:
    """UTF-8 length of all names, texts and numbers in a JSON value, however deep."""
    total = 0
    pending: list[Any] = [value]
    while pending:
        one = pending.pop()
        if isinstance(one, str):
            total += len(one.encode("utf-8", "replace"))
        elif is_object(one):
            total += sum(len(name.encode("utf-8", "replace")) for name in one)
            pending += one.values()
        elif is_list(one):
            pending += one
        elif one is not None:
            total += len(str(one))
    return total


_LABELS = frozenset({"index", "type", "id", "role", "signature"})
"""Parts of an answer that the model did not write."""


def output_tokens(*parts: Any) -> int:
    """Estimated tokens of what was produced: all texts in messages or content blocks."""
    size = 0
    pending: list[Any] = list(parts)
    while pending:
        one = pending.pop()
        if isinstance(one, str):
            size += len(one.encode("utf-8", "replace"))
        elif is_list(one):
            pending += one
        elif is_object(one):
            pending += [value for name, value in one.items() if name not in _LABELS]
    return math.ceil(size / BYTES_PER_TOKEN)


def input_size(payload: dict[str, Any], rule: MediaRule) -> InputSize:
    """Size of the input that a payload asks to read: messages, system prompt, tools."""
    size = sum(text_bytes(payload.get(name)) for name in _TEXT_FIELDS)
    expected, bound = 0, 0
    unbounded = False
    messages = items(payload.get("messages"))
    pending: list[Any] = list(messages)
    while pending:
        part = pending.pop()
        if not is_object(part):
            size += text_bytes(part)
            continue
        media = rule(part)
        if media is not None:
            expected += media.expected
            bound += media.bound or 0
            unbounded = unbounded or media.bound is None
            continue
        content = part.get("content")
        size += text_bytes({k: v for k, v in part.items() if k not in _STRUCTURE})
        if is_list(content):
            pending += content
        else:
            size += text_bytes(content)
    overhead = _MESSAGE_OVERHEAD_TOKENS * len(messages)
    tokens = math.ceil(size / BYTES_PER_TOKEN) + expected + overhead
    return InputSize(tokens, None if unbounded else size + bound + overhead)


_STRUCTURE = frozenset({"content", "role", "type"})


def request_tokens(body: bytes) -> int:
    """Estimated input tokens of a request as it was sent; at least 1."""
    try:
        payload = loads(body)
    except ValueError:
        return max(1, len(body) // BYTES_PER_TOKEN)
    return max(1, input_size(mapping(payload), openai_media).tokens)
