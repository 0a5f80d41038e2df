"""Reading job lines, storing them, and waiting for their end."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from llmqueue.batch import NewBatch
from llmqueue.client import Client, JobHandle, JobSpec, new_batch_job, new_job, parse_spec
from llmqueue.errors import (
    InvalidJob,
    PartlyEnqueued,
    StoreError,
    UnknownJob,
    UsageError,
)
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


async def lines_of(file: str) -> list[Line]:
    """`read_lines` beside the event loop."""
    return await asyncio.to_thread(read_lines, file)


def handler_line(name: str, args: str) -> Line:
    """A call of a handler as a job line. Raises UsageError."""
    try:
        values = json.loads(args)
    except ValueError as exc:
        raise UsageError(f"--args: is not JSON: {exc}") from None
    return Line("--handler", json.dumps({"handler": name, "args": values}))


async def validated(
    client: Client, queue: str, lines: Sequence[Line], *, batch: str = ""
) -> list[NewJob]:
    """All lines as jobs, or InvalidJob with `file:line: reason` for each bad one."""
    entry = await client.entry(queue)
    jobs: list[NewJob] = []
    problems: list[str] = []
    for place, line in enumerate(lines):
        try:
            spec = parse_spec(line.text)
            jobs.append(
                new_batch_job(entry, spec, batch=batch, place=place)
                if batch
                else new_job(entry, spec)
            )
        except InvalidJob as exc:
            problems.append(f"{line.place}: {exc}")
    if problems:
        more = len(problems) - _SHOWN_PROBLEMS
        shown = problems[:_SHOWN_PROBLEMS] + ([f"and {more} more"] if more > 0 else [])
        raise InvalidJob("nothing was stored:\n  " + "\n  ".join(shown))
    return jobs


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
            found = await store.standings(await store.budget_of(window[0]), window)
        except StoreError:
            away += _LOOK_SECONDS
            if away > _OUTAGE_SECONDS:
                raise
            await asyncio.sleep(_LOOK_SECONDS)
            continue
        away = 0.0
        ended: set[str] = set()
        for job_id, standing in zip(window, found, strict=True):
            if standing is None:
                raise UnknownJob(f"no job {job_id!r}, or its retention is over")
            if standing.state.terminal or standing.state is JobState.REVIEW:
                ended.add(job_id)
                counts[standing.state] += 1
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


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """A batch as the command line asks for it; `followers` are job lines by option."""

    allowed_failures: int | None
    name: str
    batch_id: str | None
    followers: Mapping[str, str]

    async def of(self, client: Client, queue: str) -> NewBatch:
        """Raises InvalidJob, naming the option."""
        specs: dict[str, JobSpec] = {}
        for option, text in self.followers.items():
            try:
                specs[option] = parse_spec(text)
            except InvalidJob as exc:
                raise InvalidJob(f"--{option}: {exc}") from None
        return await client.new_batch(
            queue,
            allowed_failures=self.allowed_failures,
            then=specs.get("then"),
            catch=specs.get("catch"),
            finally_=specs.get("finally"),
            name=self.name,
            batch_id=self.batch_id,
        )


async def enqueue_lines(
    store: IntakeStore, queue: str, lines: Sequence[Line], plan: BatchPlan | None = None
) -> list[str]:
    """Enqueue jobs and print each id as soon as it is stored; returns them.

    Of a batch its id is printed alone, before its jobs are stored. A failure says how many were
    stored before it.
    """
    client = Client(store)
    batch = await plan.of(client, queue) if plan else None
    jobs = await validated(client, queue, lines, batch=batch.id if batch else "")
    if batch:
        print(batch.id, flush=True)
    with progress_bar("Enqueueing", len(jobs)) as progress:
        told = _Told(progress, ids=batch is None)
        try:
            if batch:
                await client.store_batch(batch, jobs, on_stored=told)
            else:
                await client.store_jobs(jobs, on_stored=told)
        except (InvalidJob, PartlyEnqueued) as exc:
            exc.args = (_place(exc, jobs, lines) + str(exc),)
            raise
    return [job.id for job in jobs]


class _Told:
    """Tells of stored jobs: moves the bar on, and prints `ids` where they are wanted."""

    def __init__(self, progress: Progress, *, ids: bool) -> None:
        self._progress, self._ids, self._done = progress, ids, 0

    def __call__(self, handles: Sequence[JobHandle]) -> None:
        self._done += len(handles)
        if self._ids:
            print("\n".join(handle.id for handle in handles), flush=True)
        self._progress(self._done)


def _place(exc: Exception, jobs: Sequence[NewJob], lines: Sequence[Line]) -> str:
    """Where the job that an error names stood, as `file:number: `."""
    words = str(exc)
    return next(
        (f"{at.place}: " for at, job in zip(lines, jobs, strict=True) if job.id in words), ""
    )


async def wait_and_tell(store: IntakeStore, ids: Sequence[str]) -> Exit:
    """Wait for jobs, say on stderr how they ended; FAILED unless all succeeded."""
    with progress_bar("Waiting", len(ids)) as progress:
        ends = await wait_for(store, ids, progress)
    if ends.all_succeeded:
        return Exit.OK
    complain(f"not all jobs succeeded: {ends.words()}; `llmqueue job ID` says why")
    return Exit.FAILED
