"""Input tokens before a call: UTF-8 length of texts, media by the provider's rule.

The store scales these by a ratio learned per queue; here only the raw guess is made.
"""

from __future__ import annotations

import math
from typing import Any, cast

BYTES_PER_TOKEN = 4
_MESSAGE_OVERHEAD_TOKENS = 4
_IMAGE_TOKENS = {"low": 85, "default": 1105}
"""OpenAI's tile rule at its usual sizes; Anthropic's (width x height / 750) stays below."""
_AUDIO_BYTES_PER_TOKEN = 3200
_DOCUMENT_BYTES_PER_TOKEN = 25
_BINARY_KEYS = frozenset({"data", "url", "file_data"})


def _media_tokens(part: dict[str, Any], kind: str) -> int | None:
    """Tokens of a media part, None where it is no media."""
    if kind in ("image", "image_url", "input_image"):
        image = part.get("image_url")
        detail = cast("dict[str, Any]", image).get("detail") if isinstance(image, dict) else None
        return _IMAGE_TOKENS["low" if detail == "low" else "default"]
    size = _binary_bytes(part)
    if kind == "input_audio":
        return math.ceil(size / _AUDIO_BYTES_PER_TOKEN)
    if kind in ("document", "file") and size:
        return math.ceil(size / _DOCUMENT_BYTES_PER_TOKEN)
    return None


def _binary_bytes(part: dict[str, Any]) -> int:
    """Decoded size of the base64 in a part."""
    total = 0
    for name, value in part.items():
        if isinstance(value, dict):
            total += _binary_bytes(cast("dict[str, Any]", value))
        elif name in _BINARY_KEYS and isinstance(value, str):
            total += len(value) * 3 // 4
    return total


def _text_bytes(value: Any) -> int:
    if isinstance(value, str):
        return len(value.encode("utf-8", "replace"))
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return sum(len(name) + _text_bytes(item) for name, item in fields.items())
    if isinstance(value, list):
        return sum(_text_bytes(item) for item in cast("list[Any]", value))
    return 0 if value is None else len(str(value))  # numbers and booleans as they are written


def _content_tokens(content: Any) -> tuple[int, int]:
    """(bytes of text, tokens of media) of one message's content."""
    if not isinstance(content, list):
        return _text_bytes(content), 0
    size, media = 0, 0
    for item in cast("list[Any]", content):
        part = cast("dict[str, Any]", item) if isinstance(item, dict) else {"text": str(item)}
        tokens = _media_tokens(part, str(part.get("type", "")))
        if tokens is None:
            size += _text_bytes({k: v for k, v in part.items() if k != "type"})
        else:
            media += tokens
    return size, media


def input_size(messages: list[Any], *others: Any) -> tuple[int, int]:
    """(estimated tokens, bytes of text + media tokens as an upper bound) of a request's input.

    `others`: further parts that are sent as text (system prompt, tools).
    """
    size = sum(_text_bytes(other) for other in others)
    media = 0
    for item in messages:
        message = cast("dict[str, Any]", item) if isinstance(item, dict) else {"content": item}
        text, tokens = _content_tokens(message.get("content"))
        rest = {k: v for k, v in message.items() if k not in ("content", "role")}
        size += text + _text_bytes(rest)
        media += tokens
    overhead = _MESSAGE_OVERHEAD_TOKENS * len(messages)
    return math.ceil(size / BYTES_PER_TOKEN) + media + overhead, size + media + overhead
