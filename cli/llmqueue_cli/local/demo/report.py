"""What the demo measured, as one line for programs and in words for people. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

WINDOW_SECONDS = 61.5
"""A minute as this limiter can use it: 60 s, a sub-window of 0.5 s, and 1 s of jitter."""


@dataclass(frozen=True, slots=True)
class ProviderCounts:
    """What one provider counted by itself. `injected` counts 429s and 529s that it was told to
    give, `answered_429` those of its own limiter."""

    name: str
    limit: int
    calls: int
    answered_429: int
    injected_429: int
    injected_529: int
    worst_60s: int
    billed_twice: int


@dataclass(frozen=True, slots=True)
class Steady:
    """Calls that began within `windows` × 61.5 s of a provider's first one, and its limit a
    minute."""

    started: int
    limit: int
    windows: int = 1

    @property
    def possible(self) -> float:
        return self.limit * self.windows * WINDOW_SECONDS / 60


@dataclass(frozen=True, slots=True)
class WorkerLife:
    """One worker process: how long it lived, and whether it ended by draining."""

    seconds: float
    drained: bool
    busy_at_end: bool = False


@dataclass(frozen=True, slots=True)
class Figures:
    """All that was measured. `states` = jobs by state in the store, `targets` = for each queue the
    worker counts that were asked for, in order; `peak` = most processes at a time."""

    submitted: int
    states: Mapping[str, int]
    providers: Sequence[ProviderCounts]
    steady: Sequence[Steady]
    targets: Mapping[str, Sequence[int]]
    workers: Sequence[WorkerLife]
    peak: int
    useful_seconds: float
    seconds: float


def utilisation(steady: Iterable[Steady]) -> float:
    """Share of the budgets used while there was enough to do."""
    found = list(steady)
    possible = sum(each.possible for each in found)
    return round(sum(each.started for each in found) / possible, 4) if possible else 0.0


def direction_changes(targets: Sequence[int]) -> int:
    """How often a rise followed a fall, or a fall a rise."""
    steps = [after > before for before, after in pairwise(targets) if after != before]
    return sum(before != after for before, after in pairwise(steps))


def summary(figures: Figures) -> dict[str, Any]:
    """The line of `llmqueue demo --json`."""
    nearest = max(figures.providers, key=lambda each: each.worst_60s / each.limit)
    states = figures.states
    return {
        "jobs": {
            "submitted": figures.submitted,
            "succeeded": states.get("succeeded", 0),
            "dead": states.get("dead", 0),
            "review": states.get("review", 0),
            "lost": figures.submitted - sum(states.values()),
        },
        "provider": {
            "calls": sum(each.calls for each in figures.providers),
            "answered_429": sum(each.answered_429 for each in figures.providers),
            "injected_429": sum(each.injected_429 for each in figures.providers),
            "worst_60s": nearest.worst_60s,
            "limit": nearest.limit,
            "billed_twice": sum(each.billed_twice for each in figures.providers),
        },
        "budget_utilisation": utilisation(figures.steady),
        "workers": {
            "peak": figures.peak,
            "killed_busy": sum(w.busy_at_end and not w.drained for w in figures.workers),
            "direction_changes": sum(map(direction_changes, figures.targets.values())),
        },
        "pod_seconds": round(sum(worker.seconds for worker in figures.workers), 1),
        "useful_seconds": round(figures.useful_seconds, 1),
    }


def sentences(figures: Figures) -> Iterator[str]:
    """What was shown, in words that need no knowledge of the inside."""
    line = summary(figures)
    jobs, provider, workers = line["jobs"], line["provider"], line["workers"]
    yield (
        f"{jobs['submitted']} jobs were handed in at once; {jobs['succeeded']} succeeded,"
        f" {jobs['dead']} failed for good, {jobs['review']} wait for a person, {jobs['lost']} were"
        " lost."
    )
    for each in figures.providers:
        yield (
            f"{each.name} allows {each.limit} calls a minute. In its worst 60 seconds it counted"
            f" {each.worst_60s}, and it turned away {each.answered_429}."
        )
    yield (
        f"While there was enough to do, {line['budget_utilisation']:.1%} of what both allow was"
        " used: neither over the limit nor idle below it."
    )
    overloads = sum(each.injected_529 for each in figures.providers)
    yield (
        f"For 15 seconds the providers misbehaved on purpose: {provider['injected_429']} × 429 and"
        f" {overloads} × 529. The jobs waited and ran again; {provider['billed_twice']} were billed"
        " twice."
    )
    removed = sum(worker.drained for worker in figures.workers)
    yield (
        f"Workers came as the limits and the length of the calls asked for, {workers['peak']} at"
        f" most. {removed} left by finishing their calls first, {workers['killed_busy']} were"
        " stopped in the middle of one."
    )
    yield (
        f"{line['pod_seconds']:.0f} worker-seconds were spent for {line['useful_seconds']:.0f}"
        f" seconds' worth of calls; the whole took {figures.seconds:.0f} seconds."
    )


def is_good(figures: Figures) -> bool:
    """Whether the promises held: nothing lost, nothing over the limit, nothing paid twice."""
    line = summary(figures)
    return (
        line["jobs"]["lost"] == 0
        and line["jobs"]["succeeded"] == line["jobs"]["submitted"]
        and line["provider"]["answered_429"] == 0
        and line["provider"]["billed_twice"] == 0
        and line["workers"]["killed_busy"] == 0
        and all(each.worst_60s <= each.limit for each in figures.providers)
    )
