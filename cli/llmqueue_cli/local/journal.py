"""What `up` says on stderr: one line for each change, for people or as JSON."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable


def _stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


class Journal:
    """Writes events; `subject` is a queue id, or empty for the whole."""

    def __init__(self, *, as_json: bool, write: Callable[[str], None] = _stderr) -> None:
        self._write = write
        self._format = _as_json if as_json else _as_words

    def say(self, event: str, sentence: str, *, subject: str = "", **fields: object) -> None:
        self._write(self._format(event, sentence, subject, fields))


def _as_json(event: str, sentence: str, subject: str, fields: dict[str, object]) -> str:
    record: dict[str, object] = {"time": round(time.time(), 3), "event": event}
    if subject:
        record["queue"] = subject
    return json.dumps({**record, **fields, "message": sentence}, ensure_ascii=False, default=str)


def _as_words(event: str, sentence: str, subject: str, fields: dict[str, object]) -> str:
    del event, fields  # the sentence says it
    return f"{time.strftime('%H:%M:%S')}  {subject + ': ' if subject else ''}{sentence}"
