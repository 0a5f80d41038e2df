"""What the demo shows while it runs: a live table on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

_LINE_EVERY_SECONDS = 5.0
_BAR_CELLS = 20


@dataclass(frozen=True, slots=True)
class Row:
    """One queue at this moment. `recent` = calls that its provider counted in the last 60 s."""

    queue: str
    waiting: int
    in_flight: int
    done: int
    submitted: int
    workers: int
    wanted: int
    recent: int
    limit: int
    bound_by: str


class View(Protocol):
    """Where the demo is seen."""

    def show(self, act: str, rows: Sequence[Row], events: Sequence[str]) -> None: ...
    def close(self) -> None: ...


def view(output: TextIO) -> View:
    """The view that fits where it goes."""
    return LiveView(Console(file=output)) if output.isatty() else LineView(output)


class LineView:
    """For pipes: each act as it begins, and where the jobs are every few seconds."""

    def __init__(self, output: TextIO) -> None:
        self._output = output
        self._act = ""
        self._next = 0.0

    def show(self, act: str, rows: Sequence[Row], events: Sequence[str]) -> None:
        del events
        now = time.monotonic()
        if act != self._act:
            self._act = act
            print(f"== {act}", file=self._output, flush=True)
        elif now < self._next:
            return
        self._next = now + _LINE_EVERY_SECONDS
        for row in rows:
            print(
                f"   {row.queue}: {row.waiting} waiting, {row.in_flight} in flight,"
                f" {row.done} done; {row.workers} workers of {row.wanted} wanted"
                f" ({row.bound_by}); {row.recent} calls in 60 s, {row.limit} allowed",
                file=self._output,
                flush=True,
            )

    def close(self) -> None:
        pass


class LiveView:
    """For terminals: one table that is redrawn."""

    def __init__(self, console: Console) -> None:
        self._started = time.monotonic()
        self._live = Live(console=console, auto_refresh=False, transient=False)
        self._live.start()

    def show(self, act: str, rows: Sequence[Row], events: Sequence[str]) -> None:
        seconds = time.monotonic() - self._started
        table = Table(title=None, expand=False)
        for name in ("queue", "waiting", "in flight", "done"):
            table.add_column(name, justify="left" if name == "queue" else "right")
        table.add_column("workers")
        table.add_column("calls in the last 60 s, of the provider's limit")
        table.add_column("what decides")
        for row in rows:
            table.add_row(
                row.queue,
                str(row.waiting),
                str(row.in_flight),
                f"{row.done} of {row.submitted}",
                f"{'●' * row.workers}{'○' * max(0, row.wanted - row.workers)} {row.workers}",
                _bar(row.recent, row.limit),
                row.bound_by,
            )
        head = Text(f"{seconds:3.0f} s  {act}", style="bold")
        tail = Text("\n".join(events), style="dim")
        self._live.update(Group(head, table, tail), refresh=True)

    def close(self) -> None:
        self._live.stop()


def _bar(value: int, limit: int) -> Text:
    full = min(_BAR_CELLS, round(_BAR_CELLS * value / limit))
    colour = "red" if value > limit else "green"
    return Text(f"{'█' * full}{'░' * (_BAR_CELLS - full)} {value}/{limit}", style=colour)


def output_for(*, as_json: bool) -> TextIO:
    """Stdout is for the figures where these were asked for."""
    return sys.stderr if as_json else sys.stdout
