"""What one call reserves: tokens, and money at most."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llmqueue.job import Charge
from llmqueue.pricing import worst_case
from llmqueue.providers.estimate import InputSize
from llmqueue.providers.fields import has_field
from llmqueue.states import ProviderType


def charge_of(
    payload: Mapping[str, Any],
    model: str,
    provider: ProviderType,
    *,
    size: InputSize,
    output_tokens: int,
    unbounded: bool,
) -> Charge:
    """A call's charge; `unbounded`: it may cost more than its tokens say."""
    worst = None
    if size.bound is not None and not unbounded:
        worst = worst_case(
            model,
            provider,
            input_tokens=size.bound,
            output_tokens=output_tokens,
            cache_writes=has_field(payload, "cache_control"),
        )
    return Charge(size.tokens, output_tokens, worst)
