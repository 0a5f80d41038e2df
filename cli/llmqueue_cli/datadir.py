"""The data folder of local mode: what `up` keeps there, and how other commands find its store.

```
<folder>/
├── lock          held by the running `up`
├── up.json       0600: pid of `up`, URL of its store
├── valkey/       append-only file and log of the embedded server
└── run/          0700: credentials for the workers, removed at the end
```
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmqueue.documents import is_object
from llmqueue.errors import StoreUnavailable, UsageError

DATA_DIR_VARIABLE = "LLMQUEUE_DATA_DIR"
REDIS_URL_VARIABLE = "LLMQUEUE_REDIS_URL"


def default_folder() -> Path:
    """`$LLMQUEUE_DATA_DIR`, else `llmqueue` in the user's data folder."""
    named = os.environ.get(DATA_DIR_VARIABLE)
    if named:
        return Path(named)
    home = os.environ.get("XDG_DATA_HOME")
    return (Path(home) if home else Path.home() / ".local" / "share") / "llmqueue"


def write_private(path: Path, text: str) -> None:
    """Replace a file in one step; only its owner may read it."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(text)
    draft.replace(path)


@dataclass(frozen=True, slots=True)
class DataDir:
    """Paths below one data folder."""

    folder: Path

    @property
    def lock(self) -> Path:
        return self.folder / "lock"

    @property
    def note(self) -> Path:
        return self.folder / "up.json"

    @property
    def valkey(self) -> Path:
        return self.folder / "valkey"

    @property
    def run(self) -> Path:
        return self.folder / "run"

    def create(self) -> None:
        """Make the folders, readable for their owner only. Raises UsageError."""
        try:
            for path in (self.folder, self.valkey, self.run):
                path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as exc:
            raise UsageError(
                f"the data folder {self.folder} cannot be made: {exc.strerror};"
                " name another one with --data-dir"
            ) from exc

    def write_note(self, **fields: Any) -> None:
        write_private(self.note, json.dumps(fields))

    def read_note(self) -> dict[str, Any]:
        """What the last `up` here wrote; empty where none did or it ended in order."""
        try:
            found = json.loads(self.note.read_text())
        except (OSError, ValueError):
            return {}
        return found if is_object(found) else {}


def store_url(redis_url: str | None, data_dir: Path | None) -> str:
    """The store to talk to: the one named, else that of the `up` on the data folder.

    Raises StoreUnavailable where no `up` runs there.
    """
    if redis_url:
        return redis_url
    folder = data_dir or default_folder()
    url = DataDir(folder).read_note().get("redis_url")
    if not url:
        raise StoreUnavailable(
            f"no `llmqueue up` runs on {folder}: start one, or name a store with --redis-url"
            f" or {REDIS_URL_VARIABLE}"
        )
    return str(url)
