"""Results as JSON (all rounds) and as tables that a reader can judge."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.machine import sentence
from benchmarks.queue.systems import SYSTEMS
from benchmarks.tables import table

OURS = "llmqueue"
OURS_SENT = "llmqueue (sent + ledger)"
_RULES = """\
Rules, the same for all: a fresh valkey-server for every round (append-only file, fsync every
second); the newest version of each library in an environment of its own, with hiredis; one
producer process with the library's quickest way to enqueue; one worker process, started as the
library's documentation starts it, with the quickest pool, slots and prefetching of those tried; a
no-op job with one argument of about 110 bytes that notes its end in a file (one write), a coroutine
where the library runs coroutines. The clocks run from the first tenth of the jobs to the last one,
so start-up counts for nobody; a round counts only if every job ran, and jobs that ran more than
once are named. Figures are medians of the rounds, which go round-robin through the systems.
llmqueue runs its worker's own parts with requests, input, output and total tokens and calls in
flight limited, too high to bind; it keeps results and attempts of jobs, and validates payloads and
counts tokens at enqueue."""


def load(path: Path) -> dict[str, Any]:
    """The results so far; empty where there are none."""
    return json.loads(path.read_text()) if path.exists() else {}


def write(folder: Path, results: Mapping[str, Any]) -> Path:
    """results.json and results.md; returns the latter."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    page = folder / "results.md"
    page.write_text(markdown(results))
    return page


def markdown(results: Mapping[str, Any]) -> str:
    """The page, with the parts that there are."""
    parts = [
        "# llmqueue and other queues on one machine",
        "Written by `python -m benchmarks.queue`.",
    ]
    if "speed" in results:
        parts += _speed(results["speed"])
    if "recovery" in results:
        parts += _recovery(results["recovery"])
    return "\n\n".join(part for part in parts if part) + "\n"


def _speed(part: Mapping[str, Any]) -> list[str]:
    promises = {system.name: system for system in SYSTEMS}
    rows = [
        [
            name,
            row["version"],
            promises[name].concurrency,
            f"{row['median']['enqueue_per_second']:,.0f}",
            f"{row['median']['process_per_second']:,.0f}",
            f"{row['median']['worker_cpu_per_1k']:.2f}",
            f"{row['median']['valkey_cpu_per_1k']:.2f}",
            f"{row['median']['enqueue_cpu_per_1k']:.2f}",
            "yes" if promises[name].survives else "no",
        ]
        for name, row in part["systems"].items()
    ]
    head = [
        "system",
        "version",
        "one worker process",
        "enqueue jobs/s",
        "process jobs/s",
        "worker CPU s per 1k",
        "Valkey CPU s per 1k",
        "producer CPU s per 1k",
        "survives kill -9",
    ]
    said = [
        f"- {line}"
        for line in (*ratios(part["systems"]), *repeats(part["systems"]), *failures(part))
    ]
    return [
        "## Speed and CPU",
        table(head, rows),
        "\n".join(said),
        f"{part['jobs']:,} jobs a round, rounds: {part['rounds']}. {sentence(part['machine'])}.",
        _RULES,
    ]


def ratios(systems: Mapping[str, Any]) -> list[str]:
    """llmqueue against the fastest peer that survives kill -9, and against the leanest."""
    lasting = {system.name for system in SYSTEMS if system.survives}
    peers = {name: row["median"] for name, row in systems.items() if not name.startswith(OURS)}
    rivals = {name: row for name, row in peers.items() if name in lasting}
    if not rivals:
        return []
    fastest = max(rivals, key=lambda name: rivals[name]["process_per_second"])
    leanest = min(peers, key=lambda name: peers[name]["worker_cpu_per_1k"])
    said: list[str] = []
    for name in (OURS, OURS_SENT):
        if name in systems:
            ours = systems[name]["median"]
            speed = ours["process_per_second"] / rivals[fastest]["process_per_second"]
            cpu = ours["worker_cpu_per_1k"] / peers[leanest]["worker_cpu_per_1k"]
            said.append(
                f"{name}: {speed:.2f} × the jobs a second of {fastest}, the fastest peer that"
                f" survives kill -9; {cpu:.2f} × the worker CPU of {leanest}, the leanest peer"
            )
    return said


def repeats(systems: Mapping[str, Any]) -> list[str]:
    """Systems that ran jobs more than once though nothing failed."""
    found: list[str] = []
    for name, row in systems.items():
        most = max(one.get("repeated", 0) for one in row["rounds"])
        if most:
            found.append(f"{name} ran up to {most} of a round's jobs more than once")
    return found


def failures(part: Mapping[str, Any]) -> list[str]:
    """Rounds that did not count, in words."""
    return [f"did not count: {text.splitlines()[0]}" for text in part.get("failures", [])]


def _recovery(part: Mapping[str, Any]) -> list[str]:
    promises = {system.name: system.promise for system in SYSTEMS}
    rows = [
        [
            name,
            str(row["interrupted"]),
            str(row["back"]),
            _when(row, "first_seconds"),
            _when(row, "last_seconds"),
            f"{row['untouched_done']} of {row['untouched']}",
            promises[name],
        ]
        for name, row in part["systems"].items()
    ]
    head = [
        "system",
        "running at the kill",
        "ran again",
        "first one after",
        "last one after",
        "waiting ones run",
        "by its settings",
    ]
    return [
        "## After kill -9",
        table(head, rows),
        "\n".join(f"- {line}" for line in failures(part)),
        "All processes of a worker are killed while every slot runs a job of one second, and"
        f" another worker starts at once; watched for {part['cap_seconds']:g} s. Jobs that no slot"
        " had are the waiting ones; prefetched ones are away as long as the running ones. llmqueue"
        " lets jobs whose worker died run one at a time in a process: one that kills its worker"
        " takes no others with it."
        f" {sentence(part['machine'])}.",
    ]


def _when(row: Mapping[str, Any], name: str) -> str:
    if row[name] is None:
        return f"not within {row['cap_seconds']:g} s"
    return f"{row[name]:.0f} s"
