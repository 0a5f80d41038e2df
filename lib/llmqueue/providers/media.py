"""Tokens of images, audio and documents by the providers' rules, never by their base64 length.

Sources: OpenAI's and Anthropic's vision guides. OpenAI: an image is scaled into 2048 x 2048, its
short side to 768, and costs 85 tokens and 170 for each tile of 512; `low` costs 85. Anthropic:
width x height / 750 after scaling its long side to 1568, about 1,600 at most.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from llmqueue.providers.fields import mapping, text
from llmqueue.providers.image_size import image_size


@dataclass(frozen=True, slots=True)
class Media:
    """Tokens of one part: expected, and at most; no bound (None) for what lies elsewhere."""

    expected: int
    bound: int | None


MediaRule = Callable[[dict[str, Any]], Media | None]
"""A message part → its tokens, or None where it is no media."""

_OPENAI_BASE, _OPENAI_TILE, _OPENAI_MOST = 85, 170, 85 + 170 * 8
_OPENAI_USUAL = 85 + 170 * 6
_OPENAI_SMALL_MODELS = 34
"""gpt-4o-mini counts an image 33.3 times as often: part of the bound only."""
_ANTHROPIC_MOST, _ANTHROPIC_LARGE_MODELS = 1600, 3
"""Later models keep more pixels, up to 4,784 tokens: part of the bound only."""
_AUDIO_BYTES_PER_TOKEN = 3200
_DOCUMENT_BYTES_PER_TOKEN = 25
_HEADER_CHARACTERS = 256 * 1024


def _pixels(encoded: str) -> tuple[int, int] | None:
    """Width and height of a base64 image, read from its header."""
    head = encoded[:_HEADER_CHARACTERS]
    try:
        return image_size(base64.b64decode(head[: len(head) // 4 * 4], validate=False))
    except (binascii.Error, ValueError):
        return None


def _openai_tokens(width: int, height: int) -> int:
    fit = min(1.0, 2048 / max(width, height))
    fit *= min(1.0, 768 / max(1.0, min(width, height) * fit))
    tiles = math.ceil(width * fit / 512) * math.ceil(height * fit / 512)
    return min(_OPENAI_MOST, _OPENAI_BASE + _OPENAI_TILE * tiles)


def _anthropic_tokens(width: int, height: int) -> int:
    fit = min(1.0, 1568 / max(width, height))
    return min(_ANTHROPIC_MOST, math.ceil(width * height * fit * fit / 750))


def _bytes(encoded: Any) -> int:
    """Decoded length of base64, with or without the beginning of a data URL."""
    found = text(encoded, most=1 << 62)
    return len(found.rpartition(",")[2]) * 3 // 4


def openai_media(part: dict[str, Any]) -> Media | None:
    """Parts of chat completions: image_url, input_audio, file."""
    kind = part.get("type")
    if kind == "image_url":
        image = part.get("image_url")
        fields = mapping(image) or {"url": image}
        if fields.get("detail") == "low":
            return Media(_OPENAI_BASE, _OPENAI_BASE * _OPENAI_SMALL_MODELS)
        url = text(fields.get("url"), most=1 << 62)
        size = _pixels(url.partition(",")[2]) if url.startswith("data:") else None
        expected = _openai_tokens(*size) if size else _OPENAI_USUAL
        return Media(expected, (expected if size else _OPENAI_MOST) * _OPENAI_SMALL_MODELS)
    if kind == "input_audio":
        tokens = math.ceil(_bytes(mapping(part.get("input_audio")).get("data"))
                           / _AUDIO_BYTES_PER_TOKEN)  # fmt: skip
        # Audio has prices of its own, which the bound cannot know.
        return Media(tokens, None)
    if kind == "file":
        length = _bytes(mapping(part.get("file")).get("file_data"))
        return Media(math.ceil(length / _DOCUMENT_BYTES_PER_TOKEN), length or None)
    return None


def anthropic_media(part: dict[str, Any]) -> Media | None:
    """Parts of messages: image, document."""
    kind = part.get("type")
    source = mapping(part.get("source"))
    if kind == "image":
        size = _pixels(text(source.get("data"), most=1 << 62))
        expected = _anthropic_tokens(*size) if size else _ANTHROPIC_MOST
        return Media(expected, _ANTHROPIC_MOST * _ANTHROPIC_LARGE_MODELS)
    if kind == "document" and source.get("type") in ("base64", "url", "file"):
        length = _bytes(source.get("data"))
        return Media(math.ceil(length / _DOCUMENT_BYTES_PER_TOKEN), length or None)
    return None
