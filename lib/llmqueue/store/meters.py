"""What a queue did, ever: counters that only grow, as the scripts keep them (`_meters.lua`).

What was booked too high, since a lost worker reported after all, is taken off what comes next: no
counter ever falls, and all agree with the ledger as soon as as much again was booked.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from llmqueue.states import JobState, Severity

CALL_SECONDS = (0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 60.0, 120.0, 300.0, 600.0)
WAIT_SECONDS = (0.1, 1.0, 5.0, 15.0, 60.0, 300.0, 600.0, 1800.0, 3600.0, 14400.0, 86400.0)
"""Bounds of the distributions; `_meters.lua` has them in milliseconds."""

OTHER_MODELS = "other"
"""All models of a queue after its first twenty."""
UNNAMED_MODEL = "unknown"
"""Of a call whose model neither the job nor the provider named."""

TokenType = Literal["input", "cached_input", "cache_write", "output", "reasoning"]
TOKEN_TYPES: Mapping[str, TokenType] = {
    "i": "input",
    "c": "cached_input",
    "w": "cache_write",
    "o": "output",
    "r": "reasoning",
}
_ENDED = {
    "F": JobState.SUCCEEDED,
    "X": JobState.DEAD,
    "C": JobState.CANCELLED,
    "E": JobState.EXPIRED,
}


@dataclass(frozen=True, slots=True)
class Distribution:
    """How many values fell between two `bounds` (upper ones belong to it), and above the last."""

    bounds: Sequence[float]
    counts: Sequence[int]
    total: float
    """Sum of all values."""

    @property
    def count(self) -> int:
        return sum(self.counts)


@dataclass(frozen=True, slots=True)
class Meters:
    """Of one queue. Each call counts once, however often it was reported."""

    calls: Mapping[tuple[str, ...], int]
    """(model, outcome class) → calls that were sent."""
    tokens: Mapping[tuple[str, ...], int]
    """(model, type) → tokens as billed; each is in one type only."""
    cost_nano_usd: Mapping[str, int]
    unpriced: Mapping[str, int]
    """Model → billed calls without a price."""
    retries: Mapping[str, int]
    """Outcome class → attempts after which the job waits to run again."""
    ended: Mapping[JobState, int]
    dead: Mapping[Severity, int]
    call_seconds: Distribution
    """Of calls whose end was reported."""
    queue_wait_seconds: Distribution
    """From being ready (stored, due, given back) to the grant; each grant counts. Not of jobs that
    report failures: they wait for no budget."""
    enqueued: int
    granted: int
    settled: int
    reviews: int
    reclaims: int
    """Leases of workers that were lost."""
    fenced: int
    """Settles that came after the lease had been taken away."""
    possible_duplicates: int
    """Billed calls of jobs for which an earlier call may have been paid too."""


def meters_of(raw: Mapping[str, Any]) -> Meters:
    """From what snapshot.lua tells: `m` the flat hash, and the counters that are kept elsewhere."""
    flat: Sequence[str] = raw["m"] or ()
    found = dict(zip(flat[::2], flat[1::2], strict=True))
    models = [OTHER_MODELS, *filter(None, found.pop("models", "").split("\x1f"))]
    found.pop("credit", None)
    families: dict[str, dict[str, int]] = {}
    for name, value in found.items():
        family, _, rest = name.partition(":")
        families.setdefault(family, {})[rest] = int(value)

    def of(family: str) -> Mapping[str, int]:
        return families.get(family, {})

    def by_model(family: str) -> dict[tuple[str, ...], int]:
        sums: dict[tuple[str, ...], int] = {}
        for name, n in of(family).items():
            number, _, rest = name.partition(":")
            key = models[int(number)], rest
            sums[key] = sums.get(key, 0) + n  # a model may be called "other"
        return sums

    def single(name: str) -> int:
        return of(name).get("", 0)

    return Meters(
        calls=by_model("c"),
        tokens={(model, TOKEN_TYPES[t]): n for (model, t), n in by_model("t").items()},
        cost_nano_usd={key[0]: n for key, n in by_model("u").items()},
        unpriced={key[0]: n for key, n in by_model("n").items()},
        retries=of("r"),
        ended={state: of("f").get(letter, 0) for letter, state in _ENDED.items()},
        dead={severity: of("x").get(severity, 0) for severity in Severity},
        call_seconds=_distribution(of("d"), CALL_SECONDS),
        queue_wait_seconds=_distribution(of("w"), WAIT_SECONDS),
        enqueued=int(raw["enqueued"]),
        granted=single("granted"),
        settled=int(raw["settled"]),
        reviews=single("reviews"),
        reclaims=int(raw["reclaims"]),
        fenced=int(raw["fenced"]),
        possible_duplicates=single("doubles"),
    )


def grown(shown: Meters, before: Meters, now: Meters) -> Meters:
    """`shown` with what was counted between two looks.

    A number that fell in between (a failover lost what came last) stays, and goes on from there.
    """
    return Meters(
        **{
            each.name: _grown(*(getattr(meters, each.name) for meters in (shown, before, now)))
            for each in fields(Meters)
        }
    )


def _grown(shown: Any, before: Any, now: Any) -> Any:
    """Of a number, a distribution, or a mapping to numbers."""
    if isinstance(now, int | float):
        return shown + max(0, now - before)
    if isinstance(now, Distribution):
        counts = zip(shown.counts, before.counts, now.counts, strict=True)
        total = _grown(shown.total, before.total, now.total)
        return Distribution(now.bounds, tuple(_grown(*each) for each in counts), total)
    return {
        name: _grown(shown.get(name, 0), before.get(name, 0), now.get(name, 0))
        for name in {**shown, **now}
    }


def _distribution(milliseconds: Mapping[str, int], bounds: Sequence[float]) -> Distribution:
    """Counts by upper bound, `more` above the last, and `sum`; bounds and sum in ms."""
    counts = [0] * (len(bounds) + 1)
    for bound, count in milliseconds.items():
        if bound == "more":
            counts[-1] += count
        elif bound != "sum":
            counts[bisect_left(bounds, int(bound) / 1000)] += count
    return Distribution(bounds, counts, milliseconds.get("sum", 0) / 1000)
