"""Keys of providers: where they come from, and the private files that workers read them from."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from llmqueue.credentials import USUAL_VARIABLES
from llmqueue.errors import UsageError
from llmqueue.states import ProviderType
from llmqueue_cli.datadir import write_private

CREDENTIAL_PREFIX = "LLMQUEUE_CREDENTIAL_"


def variable_of(secret: str) -> str:
    """The variable that holds the key of a credentialsSecretRef: name in upper case, `_` else."""
    return CREDENTIAL_PREFIX + re.sub(r"[^A-Z0-9]", "_", secret.upper())


def read_file(path: Path) -> dict[str, str]:
    """`NAME=KEY` lines; `#` begins a comment line. Raises UsageError, never quoting a line."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as exc:
        raise UsageError(f"credentials file {path} cannot be read: {exc}") from exc
    keys: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        name, equals, key = text.partition("=")
        if not equals or not name.strip() or not key.strip():
            raise UsageError(f"{path}:{number}: expected NAME=KEY")
        keys[name.strip()] = key.strip()
    return keys


class Credentials:
    """Finds the key of a queue: by its secret's name first, then by its provider's usual name."""

    def __init__(self, file: Path | None, environment: Mapping[str, str] = os.environ) -> None:
        self.file = file
        self._environment = environment

    def key(self, queue: str, provider: ProviderType, secret: str | None) -> str | None:
        """The key, or None where the provider needs none. Raises UsageError where it is missing."""
        from_file = read_file(self.file) if self.file else {}
        usual = USUAL_VARIABLES.get(provider)
        for name in (secret, secret and variable_of(secret), usual):
            if name and (found := from_file.get(name)):
                return found
            if name and name != secret and (found := self._environment.get(name)):
                return found
        if usual is None:
            return None
        names = [variable_of(secret), usual] if secret else [usual]
        raise UsageError(
            f"{queue}: no key for its provider: set {' or '.join(names)}, or give"
            " --credentials-file with a line NAME=KEY"
        )


def write_key(folder: Path, queue: str, key: str) -> Path:
    """A queue's key as a file that only its owner can read; unchanged files are left alone."""
    path = folder / f"key-{queue.replace('/', '.')}"
    if not path.exists() or path.read_text() != key:
        write_private(path, key)
    return path
