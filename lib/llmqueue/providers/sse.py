"""Server-sent events from a byte stream, bounded and forgiving."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SseEvent:
    name: str
    data: str


class SseDecoder:
    """`feed(bytes)` yields complete events; a cut one at the end is never yielded."""

    def __init__(self) -> None:
        self._pending = b""
        self._name = ""
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> Iterator[SseEvent]:
        self._pending += chunk
        *lines, self._pending = self._pending.split(b"\n")
        for raw in lines:
            line = raw.rstrip(b"\r").decode("utf-8", "replace").removeprefix("\ufeff")
            if not line:
                if self._data:
                    yield SseEvent(self._name, "\n".join(self._data))
                self._name, self._data = "", []
            elif line.startswith("data:"):
                self._data.append(line[5:].removeprefix(" "))
            elif line.startswith("event:"):
                self._name = line[6:].strip()
