"""What a person may read of a provider's answer: short, printable, without keys."""

from __future__ import annotations

import re

MAX_EXCERPT_BYTES = 1024
_SECRETS = re.compile(
    r"(?i)bearer\s+[\w\-.~+/]+=*|\b(?:sk|rk|pk|gsk|xai|key|api)[-_][\w\-*.]{8,}"
    r"|(?<=x-api-key:)\s*\S+|AIza[\w\-]{20,}"
)
_SPACE = re.compile(r"[\s\x00-\x1f\x7f]+")


def excerpt(text: str | bytes) -> str:
    """At most 1 KiB of UTF-8, one line, anything like a key replaced by `[secret]`."""
    if isinstance(text, bytes):
        text = text[: 4 * MAX_EXCERPT_BYTES].decode("utf-8", "replace")
    clean = _SECRETS.sub("[secret]", text[: 4 * MAX_EXCERPT_BYTES])
    clean = _SPACE.sub(" ", clean).strip()
    raw = clean.encode("utf-8", "replace")
    if len(raw) <= MAX_EXCERPT_BYTES:
        return raw.decode()
    return raw[: MAX_EXCERPT_BYTES - 3].decode("utf-8", "ignore") + "…"
