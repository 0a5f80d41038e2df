"""What one call reserves: tokens, and money at most."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llmqueue.job import Charge
from llmqueue.pricing import worst_case
from llmqueue.providers.fields import has_field
from llmqueue.states import ProviderType


def charge_of(
    payload: Mapping[str, Any],
    model: str,
    provider: ProviderType,
    *,
    input_tokens: int,
    bound: int | None,
    output_tokens: int,
) -> Charge:
    """A call's charge; `bound` is the input at most, None where the cost can't be bounded."""
    worst = None
    if bound is not None:
        worst = worst_case(
            model,
            provider,
            input_tokens=bound,
            output_tokens=output_tokens,
            cache_writes=has_field(payload, "cache_control"),
        )
    return Charge(input_tokens, output_tokens, worst)
