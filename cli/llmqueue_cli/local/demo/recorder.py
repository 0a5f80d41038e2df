"""What happened to the workers during the demo, taken from the journal and from their ends."""

from __future__ import annotations

from collections.abc import Mapping

from llmqueue_cli.local.demo.report import WorkerLife
from llmqueue_cli.local.journal import Journal
from llmqueue_cli.local.processes import WorkerEnd

_SHOWN_EVENTS = 4


class Recorder(Journal):
    """A journal that remembers instead of writing."""

    def __init__(self) -> None:
        super().__init__(as_json=False, write=self._remember)
        self.lines: list[str] = []
        self.targets: dict[str, list[int]] = {}
        self.lives: list[WorkerLife] = []
        self.peak = 0

    def _remember(self, line: str) -> None:
        self.lines.append(line)

    @property
    def latest(self) -> list[str]:
        """The last few lines, for the live view."""
        return self.lines[-_SHOWN_EVENTS:]

    def say(self, event: str, sentence: str, *, subject: str = "", **fields: object) -> None:
        super().say(event, sentence, subject=subject, **fields)
        before, after = fields.get("before"), fields.get("after")
        if event == "workers" and isinstance(before, int) and isinstance(after, int):
            self.targets.setdefault(subject, [before]).append(after)

    def worker_ended(self, end: WorkerEnd) -> None:
        self.lives.append(WorkerLife(end.seconds, end.drained, busy_at_end=end.in_flight > 0))

    def count(self, alive: Mapping[str, int]) -> None:
        """Processes at this moment, by queue."""
        self.peak = max(self.peak, sum(alive.values()))
