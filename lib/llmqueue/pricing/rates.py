"""Prices that a resource states itself, and what a call costs by them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from llmqueue.outcome import Usage

_MILLION = 10**6


@dataclass(frozen=True, slots=True)
class Rates:
    """Nano-dollars for a million tokens; a missing one is the input's."""

    input_nano_usd: int
    output_nano_usd: int
    cached_input_nano_usd: int | None = None
    cache_write_nano_usd: int | None = None

    def cost_nano_usd(self, usage: Usage) -> int:
        """What a call costs, rounded up to a nano-dollar."""
        fresh = max(0, usage.input_tokens - usage.cached_tokens - usage.cache_write_tokens)
        total = (
            fresh * self.input_nano_usd
            + usage.cached_tokens * _or(self.cached_input_nano_usd, self.input_nano_usd)
            + usage.cache_write_tokens * _or(self.cache_write_nano_usd, self.input_nano_usd)
            + usage.output_tokens * self.output_nano_usd
        )
        return -(-total // _MILLION)

    def __str__(self) -> str:
        parts = {
            "in": self.input_nano_usd,
            "cached": self.cached_input_nano_usd,
            "write": self.cache_write_nano_usd,
            "out": self.output_nano_usd,
        }
        return " ".join(f"{name}={v / 1e9:.9g}" for name, v in parts.items() if v is not None)


def _or(rate: int | None, otherwise: int) -> int:
    return otherwise if rate is None else rate


Overrides = Mapping[str, Rates]
"""Model → what counts instead of the published price, whatever the tier."""
