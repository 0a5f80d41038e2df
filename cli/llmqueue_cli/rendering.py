"""How records reach the reader: JSON for programs, tables and words for people."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llmqueue.batch import BatchView
    from llmqueue.job import JobView

NANO_DIGITS = 9
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400


def usd(nano_usd: int | None) -> str | None:
    """Nano-dollars as an exact decimal string; None stays unknown."""
    if nano_usd is None:
        return None
    text = f"{Decimal(nano_usd).scaleb(-NANO_DIGITS):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def content(raw: bytes | None) -> Any:
    """Bytes as JSON where they are JSON, as text where they are text, else base64 in an object."""
    if raw is None:
        return None
    try:
        return json.loads(raw)
    except ValueError:
        pass
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(raw).decode()}


def attempt_record(attempt: Mapping[str, Any]) -> dict[str, Any]:
    """An attempt with its money as a decimal string."""
    record = {name: value for name, value in attempt.items() if name != "nano_usd"}
    if "nano_usd" in attempt:
        record["cost_usd"] = usd(attempt["nano_usd"])
    return record


def job_row(job: JobView) -> dict[str, Any]:
    """A job without its contents, as lists show it."""
    return {
        "id": job.id,
        "queue": job.queue,
        "state": str(job.state),
        "priority": job.priority,
        "tenant": job.tenant,
        "feature": job.feature,
        "model": job.model,
        "created_at": job.created_at,
        "finished_at": job.finished_at,
        "not_before": job.not_before,
        "deadline_at": job.deadline_at,
        "attempts_used": job.attempts_used,
        "attempts": [attempt_record(attempt) for attempt in job.attempts],
        "error": job.error,
        "cost_usd": usd(job.cost_nano_usd),
        "possible_duplicate": job.possible_duplicate,
        "correlation_id": job.correlation_id,
        "handler": job.handler,
        "batch": job.batch,
        "progress": None if job.progress is None else asdict(job.progress),
    }


def job_record(job: JobView) -> dict[str, Any]:
    """All of a job; `payload` is null once the result took its place."""
    return {**job_row(job), "payload": content(job.payload), "result": content(job.result)}


def batch_record(batch: BatchView) -> dict[str, Any]:
    """A batch as programs read it."""
    return asdict(batch)


def duration(seconds: float | None) -> str:
    """A length of time for people: `12 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`."""
    if seconds is None:
        return "–"
    whole = round(seconds)
    if whole < _MINUTE:
        return f"{seconds:.1f} s" if 0 < seconds < 10 else f"{whole} s"
    if whole < _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE} s"
    if whole < _DAY:
        return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE} min"
    return f"{whole // _DAY} d {whole % _DAY // _HOUR} h"


def clock(unix_seconds: float | None) -> str:
    """A moment in local time for people."""
    if unix_seconds is None:
        return "–"
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(unix_seconds))


def print_json(value: Any) -> None:
    """One JSON document on stdout, on one line, so that lines are records."""
    print(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table for people; numbers to the right, long words not cut when piped."""
    from rich.console import Console  # noqa: PLC0415 - keeps --help fast
    from rich.table import Table  # noqa: PLC0415

    console = Console(soft_wrap=True)
    table = Table(box=None, pad_edge=False, header_style="bold")
    lines = [list(row) for row in rows]
    for index, name in enumerate(columns):
        numbers = bool(lines) and all(isinstance(line[index], int | float) for line in lines)
        table.add_column(
            name, justify="right" if numbers else "left", no_wrap=not console.is_terminal
        )
    for line in lines:
        table.add_row(*(escaped(cell) for cell in line))
    if not console.is_terminal:
        console.width = 10_000
    console.print(table)


def escaped(value: object) -> str:
    """Text that rich shows as it is."""
    return str(value).replace("[", "\\[")
