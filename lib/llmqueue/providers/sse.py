"""Server-sent events from a byte stream, forgiving; whoever feeds it bounds the size."""

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
        self._pending: list[bytes] = []
        self._name = ""
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> Iterator[SseEvent]:
        # A line may come in many pieces: they are joined once, when it is complete.
        self._pending.append(chunk)
        if b"\n" not in chunk:
            return
        *lines, rest = b"".join(self._pending).split(b"\n")
        self._pending = [rest]
        for raw in lines:
            event = self._line(raw.rstrip(b"\r").decode("utf-8", "replace"))
            if event is not None:
                yield event

    def _line(self, line: str) -> SseEvent | None:
        line = line.removeprefix("\ufeff")
        if line:
            name, _, value = line.partition(":")
            if name == "data":
                self._data.append(value.removeprefix(" "))
            elif name == "event":
                self._name = value.strip()
            return None
        event = SseEvent(self._name, "\n".join(self._data)) if self._data else None
        self._name, self._data = "", []
        return event
