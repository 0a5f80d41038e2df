"""`python -m benchmarks.queue`: one run, one table."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.machine import facts
from benchmarks.processes import end_tidily, require_linux
from benchmarks.queue import recovery, report, speed
from benchmarks.queue.environments import prepare, version
from benchmarks.queue.systems import HERE, SYSTEMS, System, chosen


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.queue", description=__doc__)
    parser.add_argument("--jobs", type=int, default=5_000, help="jobs a round (5000)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds; medians count (3)")
    parser.add_argument("--only", help="systems, separated by commas: " + ", ".join(_names()))
    parser.add_argument("--kill", action="store_true", help="what kill -9 does, not how fast it is")
    parser.add_argument("--kill-seconds", type=float, default=90.0, help="watch so long (90)")
    parser.add_argument("--out", type=Path, default=HERE, help="folder of results.md, results.json")
    return parser.parse_args()


def _names() -> list[str]:
    return [system.name for system in SYSTEMS]


def _try(failed: list[str], what: str, measure: Callable[[], Any]) -> Any:
    """A peer that fails is reported in the table, it does not end the run."""
    try:
        measured = measure()
    except RuntimeError as exc:
        failed.append(str(exc))
        print(f"{what}: {exc}", flush=True)
        return None
    print(f"{what}: {measured}", flush=True)
    return measured


def run_speed(systems: tuple[System, ...], *, jobs: int, rounds: int) -> dict[str, Any]:
    """All rounds of all systems, round-robin."""
    machine = facts()
    failed: list[str] = []
    found: dict[str, list[speed.Speed]] = {system.name: [] for system in systems}
    for number in range(1, rounds + 1):
        for system in systems:
            one = _try(
                failed,
                f"{system.name} round {number}",
                lambda system=system: speed.measure(system, jobs),  # type: ignore[misc]
            )
            if one is not None:
                found[system.name].append(one)
    table = {
        system.name: {
            "version": version(system),
            "median": asdict(speed.median(found[system.name])),
            "rounds": [asdict(one) for one in found[system.name]],
        }
        for system in systems
        if found[system.name]
    }
    return {
        "machine": machine,
        "jobs": jobs,
        "rounds": rounds,
        "systems": table,
        "failures": failed,
    }


def run_recovery(systems: tuple[System, ...], *, cap_seconds: float) -> dict[str, Any]:
    """One kill for each system."""
    failed: list[str] = []
    table: dict[str, Any] = {}
    machine = facts()
    for system in systems:
        one = _try(
            failed,
            system.name,
            lambda system=system: recovery.measure(system, cap_seconds=cap_seconds),  # type: ignore[misc]
        )
        if one is not None:
            table[system.name] = asdict(one)
    return {
        "machine": machine,
        "cap_seconds": cap_seconds,
        "systems": table,
        "failures": failed,
    }


def main() -> None:
    require_linux()
    end_tidily()
    arguments = _arguments()
    systems = chosen(arguments.only)
    prepare(systems)
    if arguments.kill:
        part = {"recovery": run_recovery(systems, cap_seconds=arguments.kill_seconds)}
    else:
        part = {"speed": run_speed(systems, jobs=arguments.jobs, rounds=arguments.rounds)}
    results = report.load(arguments.out / "results.json") | part
    print(f"\n{report.write(arguments.out, results).read_text()}")


if __name__ == "__main__":
    main()
