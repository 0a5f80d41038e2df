"""A provider's key: read from the file that holds it, named by a fingerprint everywhere else."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from llmqueue.errors import UsageError
from llmqueue.states import ProviderType

FINGERPRINT_DIGITS = 12
MAX_KEY_BYTES = 16 * 1024
USUAL_VARIABLES: Mapping[ProviderType, str] = {
    ProviderType.OPENAI: "OPENAI_API_KEY",
    ProviderType.ANTHROPIC: "ANTHROPIC_API_KEY",
}


def fingerprint(key: str | None) -> str:
    """The name of a key in store, logs and metrics: 12 hex digits; "" where there is no key."""
    if not key:
        return ""
    return hashlib.sha256(key.encode()).hexdigest()[:FINGERPRINT_DIGITS]


@dataclass(frozen=True, slots=True)
class Credential:
    """A key and its name; the key never appears in a repr."""

    key: str | None = field(repr=False)
    fingerprint: str


NO_CREDENTIAL = Credential(None, "")


def _checked(path: Path, raw: bytes) -> str:
    try:
        key = raw.decode("ascii").strip()
    except UnicodeDecodeError:
        raise UsageError(f"credentials file {path}: a key is plain ASCII text") from None
    if not key:
        raise UsageError(f"credentials file {path} is empty: write the provider's key into it")
    # A line break or a blank in a header value would fail with every call, and obscurely.
    if any(not "!" <= letter <= "~" for letter in key):
        raise UsageError(f"credentials file {path}: one key on one line, without blanks")
    return key


class CredentialFile:
    """The key in a file, read again when the file changes (a mounted Secret is replaced whole).

    `path` None: the provider needs no key.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self._credential = NO_CREDENTIAL

    def read(self) -> Credential:
        """The key as it is now.

        Raises UsageError: the file is missing, unreadable or holds no key. The key that was read
        before is not used any more: whoever removed it meant it.
        """
        if self._path is None:
            return NO_CREDENTIAL
        try:
            stat = self._path.stat()
            version = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
            if version == self._seen:
                return self._credential
            with self._path.open("rb") as file:
                raw = file.read(MAX_KEY_BYTES + 1)
        except OSError as exc:
            self._seen = None
            raise UsageError(
                f"credentials file {self._path} cannot be read: {exc.strerror}"
            ) from exc
        self._seen = None
        if len(raw) > MAX_KEY_BYTES:
            raise UsageError(f"credentials file {self._path} is too large to be a key")
        key = _checked(self._path, raw)
        self._credential = Credential(key, fingerprint(key))
        self._seen = version
        return self._credential
