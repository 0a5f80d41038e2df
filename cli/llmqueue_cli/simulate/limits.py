"""What the simulated provider limits, and how much of it one call takes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

TokenCounting = Literal["keep", "correct"]
"""`keep`: the reservation made on arrival stays. `correct`: the actual usage replaces it."""


class Dimension(StrEnum):
    """Something counted against a limit of its own."""

    REQUESTS = "requests"
    TOKENS = "tokens"
    INPUT_TOKENS = "input_tokens"
    OUTPUT_TOKENS = "output_tokens"


@dataclass(frozen=True, slots=True)
class Limits:
    """At most this many in any window; None = not limited."""

    requests: int | None = None
    tokens: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None

    def __post_init__(self) -> None:
        for dimension in Dimension:
            limit = self.of(dimension)
            if limit is not None and limit < 0:
                raise ValueError(f"the limit of {dimension} is negative: {limit}")

    def of(self, dimension: Dimension) -> int | None:
        """The limit of one dimension."""
        limit: int | None = getattr(self, dimension.value)
        return limit


@dataclass(frozen=True, slots=True)
class Demand:
    """What a call asks for, as far as the provider can tell before it runs.

    `input_tokens` is the provider's own estimate; `max_output_tokens` is None where the request
    declares none.
    """

    input_tokens: int = 0
    max_output_tokens: int | None = None

    def amounts(self, counting: TokenCounting) -> dict[Dimension, int]:
        """What is counted on arrival. With `correct`, output counts as it is produced."""
        most = self.max_output_tokens or 0
        return {
            Dimension.REQUESTS: 1,
            Dimension.TOKENS: max(most, self.input_tokens),
            Dimension.INPUT_TOKENS: self.input_tokens,
            Dimension.OUTPUT_TOKENS: most if counting == "keep" else 0,
        }


@dataclass(frozen=True, slots=True)
class Level:
    """How full one limit is; `reset_seconds` = until it would be wholly free again."""

    limit: int
    remaining: int
    reset_seconds: float
