"""Tokens of media by the providers' rules, and sizes of images from their headers."""

from __future__ import annotations

import base64
import struct
from typing import Any

import pytest

from llmqueue.errors import InvalidJob
from llmqueue.providers.estimate import request_tokens, text_bytes
from llmqueue.providers.image_size import image_size
from llmqueue.providers.port import Endpoint
from llmqueue.providers.registry import get_provider
from llmqueue.states import ProviderType

OPENAI, ANTHROPIC = get_provider(ProviderType.OPENAI), get_provider(ProviderType.ANTHROPIC)
OVERHEAD = 4


def png(width: int, height: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + struct.pack(">II", width, height) + b"\x08"


def jpeg(width: int, height: int, *, before: bytes = b"") -> bytes:
    frame = struct.pack(">BBHBHHB", 0xFF, 0xC0, 17, 8, height, width, 3)
    return b"\xff\xd8\xff\xe0\x00\x04ab" + before + frame + b"\x00" * 12


def webp(kind: bytes, data: bytes) -> bytes:
    return b"RIFF\x00\x00\x00\x00WEBP" + kind + b"\x00\x00\x00\x00" + data


IMAGES: dict[str, tuple[bytes, tuple[int, int] | None]] = {
    "png": (png(640, 480), (640, 480)),
    "gif": (b"GIF89a" + struct.pack("<HH", 3, 5), (3, 5)),
    "jpeg": (jpeg(800, 600), (800, 600)),
    "jpeg-fill-bytes": (jpeg(800, 600, before=b"\xff\xff\xe1\x00\x03a"), (800, 600)),
    "jpeg-tables-first": (jpeg(7, 9, before=b"\xff\xc4\x00\x05abc"), (7, 9)),
    "webp-extended": (webp(b"VP8X", b"\x00" * 4 + b"\x1f\x03\x00" + b"\x57\x02\x00"), (800, 600)),
    "webp-lossless": (webp(b"VP8L", b"\x2f" + struct.pack("<I", 799 | 599 << 14)), (800, 600)),
    "webp-lossy": (webp(b"VP8 ", b"\x00" * 6 + struct.pack("<HH", 800, 600)), (800, 600)),
    "webp-other": (webp(b"ABCD", b"\x00" * 20), None),
    "png-cut": (png(640, 480)[:18], None),
    "png-zero": (png(0, 480), None),
    "jpeg-cut": (jpeg(800, 600)[:12], None),
    "jpeg-broken": (b"\xff\xd8" + b"\x00" * 40, None),
    "text": (b"hello", None),
    "nothing": (b"", None),
}


@pytest.mark.parametrize(("data", "size"), IMAGES.values(), ids=IMAGES.keys())
def test_image_size(data: bytes, size: tuple[int, int] | None) -> None:
    assert image_size(data) == size


def openai_image(data: bytes, **more: str) -> dict[str, Any]:
    url = "data:image/png;base64," + base64.b64encode(data + b"\x00" * 30_000).decode()
    return {"type": "image_url", "image_url": {"url": url, **more}}


def anthropic_image(data: bytes) -> dict[str, Any]:
    encoded = base64.b64encode(data + b"\x00" * 30_000).decode()
    return {"type": "image", "source": {"type": "base64", "data": encoded}}


def prepared(provider: Any, *parts: Any, model: str = "gpt-4o", **more: Any) -> Any:
    messages = [{"role": "user", "content": list(parts)}]
    return provider.prepare(
        {"model": model, "messages": messages, **more}, models=(), default_max_output_tokens=10
    ).charge


OPENAI_MEDIA: dict[str, tuple[Any, int]] = {
    # Source: the worked examples of OpenAI's vision guide.
    "1024x1024": (openai_image(png(1024, 1024)), 765),
    "2048x4096": (openai_image(png(2048, 4096)), 1105),
    "one-tile": (openai_image(png(300, 200)), 255),
    "low-detail": (openai_image(png(4096, 4096), detail="low"), 85),
    "by-address": ({"type": "image_url", "image_url": {"url": "https://x/y.png"}}, 1105),
    "address-as-text": ({"type": "image_url", "image_url": "https://x/y.png"}, 1105),
    "no-image": ({"type": "image_url", "image_url": {"url": "data:image/png;base64,?"}}, 1105),
    "audio": ({"type": "input_audio", "input_audio": {"data": "d" * 128_000}}, 30),
    "file": ({"type": "file", "file": {"file_data": "data:x;base64," + "d" * 10_000}}, 300),
}


@pytest.mark.parametrize(("part", "tokens"), OPENAI_MEDIA.values(), ids=OPENAI_MEDIA.keys())
def test_openai_media(part: Any, tokens: int) -> None:
    assert prepared(OPENAI, part).input_tokens == tokens + OVERHEAD


ANTHROPIC_MEDIA: dict[str, tuple[Any, int]] = {
    # Source: the table of Anthropic's vision guide.
    "200x200": (anthropic_image(png(200, 200)), 54),
    "1000x1000": (anthropic_image(png(1000, 1000)), 1334),
    "scaled-down": (anthropic_image(png(8000, 4000)), 1600),
    "narrow": (anthropic_image(png(15_680, 100)), 21),
    "by-address": ({"type": "image", "source": {"type": "url", "url": "https://x"}}, 1600),
    "document": ({"type": "document", "source": {"type": "base64", "data": "d" * 10_000}}, 300),
    "text-document": ({"type": "document", "source": {"type": "text", "data": "d" * 388}}, 100),
}


@pytest.mark.parametrize(("part", "tokens"), ANTHROPIC_MEDIA.values(), ids=ANTHROPIC_MEDIA.keys())
def test_anthropic_media(part: Any, tokens: int) -> None:
    found = prepared(ANTHROPIC, part, model="claude-sonnet-4-0").input_tokens
    assert found - OVERHEAD == pytest.approx(tokens, abs=4)


def test_media_inside_tool_results() -> None:
    """Images come back from tools too: never counted by base64 length."""
    result = {
        "type": "tool_result",
        "tool_use_id": "t",
        "content": [anthropic_image(png(200, 200))],
    }
    assert prepared(ANTHROPIC, result).input_tokens < 100


UNBOUNDED: dict[str, tuple[Any, str, Any, dict[str, Any]]] = {
    "audio": (OPENAI, "gpt-4o", {"type": "input_audio", "input_audio": {"data": "d"}}, {}),
    "file-by-id": (OPENAI, "gpt-4o", {"type": "file", "file": {"file_id": "f"}}, {}),
    "priority": (OPENAI, "gpt-4o", "x", {"service_tier": "priority"}),
    "audio-output": (OPENAI, "gpt-4o", "x", {"modalities": ["text", "audio"]}),
    "web-search": (OPENAI, "gpt-4o", "x", {"web_search_options": {}}),
    "document-by-address": (
        ANTHROPIC,
        "claude-sonnet-4-0",
        {"type": "document", "source": {"type": "url", "url": "https://x"}},
        {},
    ),
    "server-tool": (
        ANTHROPIC,
        "claude-sonnet-4-0",
        "x",
        {"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
    ),
    "mcp": (ANTHROPIC, "claude-sonnet-4-0", "x", {"mcp_servers": []}),
    "unknown-model": (OPENAI, "nobody-knows-it", "x", {}),
}


@pytest.mark.parametrize(
    ("provider", "model", "part", "more"), UNBOUNDED.values(), ids=UNBOUNDED.keys()
)
def test_what_cannot_be_bounded_has_no_worst_case(
    provider: Any, model: str, part: Any, more: dict[str, Any]
) -> None:
    """P30: None, never a guess."""
    assert prepared(provider, part, model=model, **more).worst_nano_usd is None


def test_the_worst_case_counts_bytes_as_tokens() -> None:
    charge = prepared(ANTHROPIC, "x" * 1000, model="claude-sonnet-4-0", tools=[{"name": "f"}])
    assert charge.input_tokens == 256
    size = 1000 + len("name") + len("f") + OVERHEAD
    assert charge.worst_nano_usd == size * 3_000 + 10 * 15_000


def test_cache_writes_are_dearer() -> None:
    part = {"type": "text", "text": "x", "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    charge = prepared(ANTHROPIC, part, model="claude-sonnet-4-0")
    size = text_bytes({"text": "x", "cache_control": {"type": "ephemeral", "ttl": "1h"}})
    assert charge.worst_nano_usd == (size + OVERHEAD) * 6_000 + 10 * 15_000


def test_deep_payloads_are_counted() -> None:
    """No recursion: a gateway must not fall over what a parser let in."""
    deep: Any = "x"
    for _ in range(50_000):
        deep = [deep]
    assert text_bytes(deep) == 1
    assert prepared(OPENAI, "x", tools=deep).input_tokens == 1 + OVERHEAD


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_numbers_that_json_does_not_have(number: float) -> None:
    payload = {"model": "m", "messages": [{"role": "user"}], "temperature": number}
    for provider in (OPENAI, ANTHROPIC):
        with pytest.raises(InvalidJob, match="NaN"):
            provider.request(
                payload, Endpoint("http://x", None), job_id="J", call=1, max_output_tokens=1
            )


@pytest.mark.parametrize(
    ("body", "tokens"),
    [
        (
            b'{"messages": [{"role": "user", "content": "xxxxxxxx"}], "system": "xxxx"}',
            3 + OVERHEAD,
        ),
        (b"{}", 1),
        (b"no json at all!!", 4),
        (b"[]", 1),
    ],
)
def test_request_tokens(body: bytes, tokens: int) -> None:
    assert request_tokens(body) == tokens
