"""What a person may read of a provider's answer: short, printable, without keys."""

from __future__ import annotations

import re

MAX_EXCERPT_BYTES = 1024
_SECRET = "[secret]"
_MIN_KEY_CHARACTERS = 6
"""Shorter ones are words of every text, and nobody's key."""
_SECRETS = re.compile(
    r"(?i)bearer\s+[\w\-.~+/]+=*|\b(?:sk|rk|pk|gsk|xai|key|api)[-_][\w\-*.]{8,}"
    r"|(?<=x-api-key:)\s*\S+|AIza[\w\-]{20,}|(?<=key=)[^\s&\"']{6,}|(?<=://)[^\s/@]+(?=@)"
)
_SPACE = re.compile(r"[\s\x00-\x1f\x7f]+")


def excerpt(text: str | bytes, *, most: int = MAX_EXCERPT_BYTES) -> str:
    """At most `most` bytes of UTF-8, one line, anything like a key replaced by `[secret]`."""
    if isinstance(text, bytes):
        text = text[: 4 * MAX_EXCERPT_BYTES].decode("utf-8", "replace")
    clean = _SECRETS.sub(_SECRET, text[: 4 * MAX_EXCERPT_BYTES])
    clean = _SPACE.sub(" ", clean).strip()
    raw = clean.encode("utf-8", "replace")
    if len(raw) <= most:
        return raw.decode()
    return raw[: most - 3].decode("utf-8", "ignore") + "…"


def without(text: str, keys: tuple[str, ...]) -> str:
    """The text without these very keys, and without the beginning of one at a cut end."""
    for key in keys:
        if len(key) < _MIN_KEY_CHARACTERS:
            continue
        text = text.replace(key, _SECRET)
        bare = text.removesuffix("…")
        for length in range(min(len(key), len(bare)), _MIN_KEY_CHARACTERS - 1, -1):
            if bare.endswith(key[:length]):
                text = bare[:-length] + _SECRET
                break
    return text
