"""A provider's key: read from a file that may change, never logged, known by its fingerprint."""

from __future__ import annotations

import hashlib
from pathlib import Path

from llmqueue.errors import UsageError

_FINGERPRINT_DIGITS = 12


def fingerprint(key: str | None) -> str:
    """Names a key without giving it away: pauses are per fingerprint. Empty for no key."""
    if not key:
        return ""
    return hashlib.sha256(key.encode()).hexdigest()[:_FINGERPRINT_DIGITS]


class KeyFile:
    """A key in a file, read again when the file changes (mounted secrets do).

    Raises UsageError from `key()` where the file cannot be read or is empty.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._key: str | None = None

    def key(self) -> str | None:
        """The key, None where the provider needs none."""
        if self._path is None:
            return None
        try:
            stat = self._path.stat()
            seen = (stat.st_mtime_ns, stat.st_ino)
            if seen != self._seen:
                self._key = self._path.read_text("utf-8").strip()
                self._seen = seen
        except (OSError, UnicodeDecodeError) as exc:
            raise UsageError(f"the provider's key cannot be read from {self._path}: {exc}") from exc
        if not self._key:
            raise UsageError(f"the provider's key file {self._path} is empty")
        return self._key
