"""`python -m benchmarks.scripts`: server time of every script, memory per waiting job."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.machine import facts
from benchmarks.processes import end_tidily, require_linux
from benchmarks.scripts import scenarios
from benchmarks.scripts.bench import PAYLOAD, Bench, bench
from benchmarks.scripts.report import markdown
from benchmarks.scripts.server_time import times
from llmqueue_worker.batching import MOST_ITEMS

HERE = Path(__file__).parent
DEPTHS = (1_000, 100_000, 1_000_000)
TENANTS = 10_000
LEASES, DUE, CANCELLED = 20_000, 100_000, 100_000
TURNS, CLAIMS = 100, 2_000
MEMORY_JOBS = 100_000
Scenario = Callable[[Bench], Awaitable[scenarios.Durations]]


def _scenarios(share: float) -> list[tuple[str, Scenario]]:
    """Names and programs; `share` of every size."""

    def some(number: int) -> int:
        return max(200, round(number * share))

    listed: list[tuple[str, Scenario]] = []
    for depth in map(some, DEPTHS):
        turns = min(CLAIMS, depth)
        listed += [
            (f"{depth:,} waiting", partial(scenarios.waiting, depth=depth, turns=TURNS)),
            (
                f"{depth:,} waiting, claims of one job",
                partial(scenarios.claims_only, depth=depth, turns=turns),
            ),
        ]
    tenants = some(TENANTS)
    listed += [
        (
            f"{tenants:,} jobs of {owners}, {size} a claim",
            partial(scenarios.tenants_claimed, tenants=number, jobs=tenants, size=size),
        )
        for size in (1, MOST_ITEMS)
        for owners, number in (("one tenant", 1), ("a tenant each", tenants))
    ]
    leases, due, cancelled = map(some, (LEASES, DUE, CANCELLED))
    return [
        *listed,
        (f"{leases:,} leases expire at once", partial(scenarios.leases_expire, leases=leases)),
        (f"{due:,} delayed jobs due at once", partial(scenarios.due_at_once, jobs=due)),
        (
            f"{cancelled:,} cancelled jobs at the head",
            partial(scenarios.cancelled_at_the_head, jobs=cancelled),
        ),
    ]


async def _run(share: float, only: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, scenario in _scenarios(share):
        if only not in name:
            continue
        async with bench() as one:
            measured = {script: times(each) for script, each in (await scenario(one)).items()}
        found[name] = {script: asdict(time) for script, time in sorted(measured.items())}
        worst = max(measured, key=lambda script: measured[script].max_us)
        print(f"{name}: longest {measured[worst].max_us / 1000:.1f} ms ({worst})", flush=True)
    return found


async def _memory(jobs: int, *, keyed: bool) -> float:
    """Bytes per waiting job above its payload."""
    async with bench() as one:
        one.clock.recording = False
        await one.fill(100)
        before = one.clock.used_memory()
        await one.fill(jobs, keyed=keyed)
        return (one.clock.used_memory() - before) / jobs - len(PAYLOAD)


async def _all(share: float, only: str) -> dict[str, Any]:
    machine = facts()
    measured = await _run(share, only)
    jobs = max(1_000, round(MEMORY_JOBS * share))
    return {
        "machine": machine,
        "scripts": measured,
        "memory": {
            "jobs": jobs,
            "payload_bytes": len(PAYLOAD),
            "overhead_bytes": await _memory(jobs, keyed=False),
            "overhead_with_key_bytes": await _memory(jobs, keyed=True),
        },
    }


def main() -> None:
    require_linux()
    end_tidily()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scripts", description=__doc__)
    parser.add_argument("--share", type=float, default=1.0, help="share of every size (1.0)")
    parser.add_argument("--only", default="", help="scenarios whose name contains this")
    parser.add_argument("--out", type=Path, default=HERE, help="folder of results.md, results.json")
    arguments = parser.parse_args()
    results = asyncio.run(_all(arguments.share, arguments.only))
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    page = markdown(results)
    (arguments.out / "results.md").write_text(page)
    print(f"\n{page}")


if __name__ == "__main__":
    main()
