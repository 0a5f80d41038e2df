"""Reading job lines, storing them, and waiting for their end."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from llmqueue.client import Client, chunks, new_job, parse_spec
from llmqueue.errors import IdempotencyConflict, InvalidJob, QueueFull, StoreError, UsageError
from llmqueue.job import NewJob
from llmqueue.states import JobState
from llmqueue.store.port import IntakeStore
from llmqueue_cli.execution import complain
from llmqueue_cli.exits import Exit

STDIN = "-"
_SHOWN_PROBLEMS = 20
_LOOK_AHEAD = 64
"""Jobs end nearly in order, so watching the oldest unfinished ones is enough."""
_FIRST_LOOK_SECONDS, _LOOK_SECONDS = 0.1, 0.5
_OUTAGE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Line:
    """A non-empty line and where it stood, as `file:number`."""

    place: str
    text: str


class Progress(Protocol):
    """What moves a progress bar on."""

    def __call__(self, done: int) -> None: ...


def read_lines(file: str) -> list[Line]:
    """The non-empty lines of a JSONL file, or of stdin for `-`. Raises UsageError."""
    name = "stdin" if file == STDIN else file
    try:
        text = sys.stdin.read() if file == STDIN else Path(file).read_text(encoding="utf-8-sig")
    except OSError as exc:
        raise UsageError(f"{name}: cannot be read: {exc.strerror}") from exc
    except UnicodeDecodeError as exc:
        raise UsageError(f"{name}: is not UTF-8 (byte {exc.start})") from exc
    # Not splitlines(): JSON strings may hold U+2028, which is no end of a line here.
    return [
        Line(f"{name}:{number}", line)
        for number, line in enumerate(text.split("\n"), start=1)
        if line.strip()
    ]


async def validated(client: Client, queue: str, lines: Iterable[Line]) -> list[NewJob]:
    """All lines as jobs, or InvalidJob with `file:line: reason` for each bad one."""
    entry = await client.entry(queue)
    jobs: list[NewJob] = []
    problems: list[str] = []
    for line in lines:
        try:
            jobs.append(new_job(entry, parse_spec(line.text)))
        except InvalidJob as exc:
            problems.append(f"{line.place}: {exc}")
    if problems:
        more = len(problems) - _SHOWN_PROBLEMS
        shown = problems[:_SHOWN_PROBLEMS] + ([f"and {more} more"] if more > 0 else [])
        raise InvalidJob("nothing was stored:\n  " + "\n  ".join(shown))
    return jobs


async def store_jobs(
    store: IntakeStore, jobs: Sequence[NewJob], places: Sequence[str], progress: Progress
) -> None:
    """Store jobs in order and print each id as soon as it is stored.

    A failure says how many were stored before it.
    """
    stored = 0
    for chunk in chunks(jobs):
        try:
            answers = await store.enqueue(chunk)
        except QueueFull as exc:
            raise QueueFull(
                f"{exc}; {stored} of {len(jobs)} jobs were stored",
                estimated_wait_seconds=exc.estimated_wait_seconds,
            ) from exc
        except IdempotencyConflict as exc:
            at = next((p for j, p in zip(jobs, places, strict=True) if j.id in str(exc)), "")
            raise IdempotencyConflict(
                f"{at + ': ' if at else ''}{exc}; {stored} of {len(jobs)} jobs were stored"
            ) from exc
        except StoreError as exc:
            raise type(exc)(f"{exc}; at least {stored} of {len(jobs)} jobs were stored") from exc
        stored += len(answers)
        print("\n".join(answer.id for answer in answers), flush=True)
        progress(stored)


@dataclass(frozen=True, slots=True)
class Ends:
    """How many jobs ended in which state; review counts as an end that waits for a person."""

    counts: dict[JobState, int]

    @property
    def all_succeeded(self) -> bool:
        return not any(n for state, n in self.counts.items() if state is not JobState.SUCCEEDED)

    def words(self) -> str:
        return ", ".join(f"{count} {state}" for state, count in self.counts.items() if count)


async def wait_for(store: IntakeStore, ids: Sequence[str], progress: Progress) -> Ends:
    """Watch jobs until each has ended or waits in review. An outage of a minute is sat out."""
    pending: list[str] = list(dict.fromkeys(ids))
    total, counts = len(pending), dict.fromkeys(JobState, 0)
    pause, away = _FIRST_LOOK_SECONDS, 0.0
    while pending:
        window = pending[:_LOOK_AHEAD]
        try:
            views = await asyncio.gather(*(store.job(job_id) for job_id in window))
        except StoreError:
            away += _LOOK_SECONDS
            if away > _OUTAGE_SECONDS:
                raise
            await asyncio.sleep(_LOOK_SECONDS)
            continue
        away = 0.0
        ended = {v.id for v in views if v.state.terminal or v.state is JobState.REVIEW}
        for view in views:
            if view.id in ended:
                counts[view.state] += 1
        pending = [job_id for job_id in pending if job_id not in ended]
        progress(total - len(pending))
        if not ended:
            await asyncio.sleep(pause)
            pause = _LOOK_SECONDS
    return Ends(counts)


def progress_bar(title: str, total: int) -> AbstractContextManager[Progress]:
    """A bar on stderr where that is a terminal, else nothing: stdout is for ids."""
    if not sys.stderr.isatty():
        return nullcontext(lambda done: None)
    return _Bar(title, total)


class _Bar:
    def __init__(self, title: str, total: int) -> None:
        from rich.console import Console  # noqa: PLC0415 - only for a terminal
        from rich.progress import BarColumn, MofNCompleteColumn, TimeRemainingColumn  # noqa: PLC0415
        from rich.progress import Progress as RichProgress  # noqa: PLC0415

        self._bar = RichProgress(
            "[progress.description]{task.description}",
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self._task = self._bar.add_task(title, total=total)

    def __enter__(self) -> Progress:
        self._bar.start()
        return lambda done: self._bar.update(self._task, completed=done)

    def __exit__(self, *exc: Any) -> None:
        self._bar.stop()


async def enqueue_file(store: IntakeStore, queue: str, file: str) -> list[str]:
    """Enqueue a file's jobs; returns their ids, which are printed too."""
    lines = await asyncio.to_thread(read_lines, file)
    jobs = await validated(Client(store), queue, lines)
    with progress_bar("Enqueueing", len(jobs)) as progress:
        await store_jobs(store, jobs, [line.place for line in lines], progress)
    return [job.id for job in jobs]


async def wait_and_tell(store: IntakeStore, ids: Sequence[str]) -> Exit:
    """Wait for jobs, say on stderr how they ended; FAILED unless all succeeded."""
    with progress_bar("Waiting", len(ids)) as progress:
        ends = await wait_for(store, ids, progress)
    if ends.all_succeeded:
        return Exit.OK
    complain(f"not all jobs succeeded: {ends.words()}; `llmqueue job ID` says why")
    return Exit.FAILED
