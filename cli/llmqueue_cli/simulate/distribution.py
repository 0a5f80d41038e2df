"""How long calls take and how much they produce: constant, lognormal, or as in a trace."""

from __future__ import annotations

import csv
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


class Distribution(Protocol):
    """Numbers ≥ 0, one for each call."""

    def draw(self, rng: random.Random) -> float: ...


@dataclass(frozen=True, slots=True)
class Constant:
    value: float

    def draw(self, rng: random.Random) -> float:
        return self.value


@dataclass(frozen=True, slots=True)
class Lognormal:
    """`mean` is that of the numbers themselves, `sigma` that of their logarithm."""

    mean: float
    sigma: float

    def draw(self, rng: random.Random) -> float:
        return rng.lognormvariate(math.log(self.mean) - self.sigma**2 / 2, self.sigma)


class TraceOutputs:
    """Generated tokens of a trace's requests, in their order, from the start again at its end."""

    def __init__(self, outputs: Sequence[int]) -> None:
        if not outputs:
            raise ValueError("the trace has no rows")
        self._outputs = outputs
        self._next = 0

    def draw(self, rng: random.Random) -> float:
        value = self._outputs[self._next % len(self._outputs)]
        self._next += 1
        return value


def read_trace(path: Path) -> TraceOutputs:
    """A CSV with the column GeneratedTokens. Raises ValueError that names the file."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            return TraceOutputs([int(row["GeneratedTokens"]) for row in csv.DictReader(file)])
    except KeyError:
        raise ValueError(f"{path}: the trace has no column GeneratedTokens") from None
    except ValueError as exc:
        raise ValueError(f"{path}: {exc}") from exc


def parse_distribution(text: str) -> Distribution:
    """`2.5`, `constant:2.5` or `lognormal:MEAN,SIGMA`. Raises ValueError that says so."""
    kind, _, rest = text.rpartition(":")
    try:
        numbers = [float(part) for part in rest.split(",")]
    except ValueError:
        numbers = []
    good = all(math.isfinite(each) and each >= 0 for each in numbers)
    if good and kind in ("", "constant") and len(numbers) == 1:
        return Constant(numbers[0])
    if good and kind == "lognormal" and len(numbers) == 2 and numbers[0] > 0:
        return Lognormal(numbers[0], numbers[1])
    raise ValueError(f"{text!r} is none of: a number, constant:NUMBER, lognormal:MEAN,SIGMA")
