"""Prices in integer nano-dollars: a resource's own, else genai-prices' offline data.

Unknown is None, never 0: a call without a price has no cost, and is never called cheap.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import ROUND_CEILING, Decimal
from types import MappingProxyType
from typing import TYPE_CHECKING

from llmqueue.outcome import Usage
from llmqueue.pricing.rates import Overrides, Rates
from llmqueue.states import ProviderType

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, TieredPrices

__all__ = ["NO_OVERRIDES", "Overrides", "Priced", "Rates", "price", "quote", "worst_case"]

NO_OVERRIDES: Overrides = MappingProxyType({})
_NANO = Decimal(10**9)
_PROVIDER_IDS = {ProviderType.OPENAI: "openai", ProviderType.ANTHROPIC: "anthropic"}
"""Compatible servers are many: there a model's name alone finds who sells it."""
_LIST_TIERS = frozenset({"", "auto", "default", "standard", "on_demand"})
"""What answers call the tier that costs the list price; `on_demand` is Groq's."""
_RATE_NAMES = {
    "input_mtok": "in",
    "cache_read_mtok": "cached",
    "cache_write_mtok": "write",
    "cache_write_1h_mtok": "write1h",
    "output_mtok": "out",
}


@dataclass(frozen=True, slots=True)
class Priced:
    """A cost, rounded up to a nano-dollar, and the price it follows from (dollars for a million
    tokens), as the ledger keeps it."""

    nano_usd: int
    price: str


def quote(
    model: str,
    provider: ProviderType,
    usage: Usage,
    *,
    tier: str = "",
    overrides: Overrides = NO_OVERRIDES,
) -> Priced | None:
    """What a call costs, None without a price. `tier` as the *response* reports it."""
    own = overrides.get(model)
    if own is not None:
        return Priced(own.cost_nano_usd(usage), f"{model} {own} (own)")
    return _published(model, provider, usage, tier.lower()) if model else None


def _published(model: str, provider: ProviderType, usage: Usage, tier: str) -> Priced | None:
    # A second of loading: only processes that price something pay it.
    from genai_prices import Usage as PricedUsage  # noqa: PLC0415
    from genai_prices import calc_price  # noqa: PLC0415

    priced = PricedUsage(
        input_tokens=usage.input_tokens,
        cache_read_tokens=usage.cached_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        cache_write_1h_tokens=usage.cache_write_1h_tokens,
        output_tokens=usage.output_tokens,
    )
    now, context = datetime.now(UTC), _context(tier)
    try:
        with warnings.catch_warnings():
            # "No price for cache writes": they are billed as the input they are.
            warnings.simplefilter("ignore", UserWarning)
            found = calc_price(
                priced,
                model,
                provider_id=_PROVIDER_IDS.get(provider),
                genai_request_timestamp=now,
                price_context=context,
            )
    except (LookupError, ValueError):
        return None
    if context and not _has_price_for(found.model, context, now):
        return None
    rates = " ".join(
        f"{name}={_applied(rate, usage)}"
        for field, name in _RATE_NAMES.items()
        if (rate := getattr(found.model_price, field, None)) is not None
    )
    nano_usd = int((found.total_price * _NANO).to_integral_value(ROUND_CEILING))
    of_tier = f" ({tier})" if context else ""
    return Priced(nano_usd, f"{found.provider.id}/{found.model.id} {rates}{of_tier}")


def _context(tier: str) -> dict[str, str]:
    """What genai-prices calls a tier; empty = the list price."""
    if tier in _LIST_TIERS:
        return {}
    return {"processing": "batch"} if tier == "batch" else {"service_tier": tier}


def _has_price_for(model: ModelInfo, context: dict[str, str], now: datetime) -> bool:
    """genai-prices falls back on the list price, which would be wrong for a dearer tier."""
    return any(
        variant.when == context and (variant.constraint is None or variant.constraint.active(now))
        for variant in model.price_variants or ()
    )


def _applied(rate: Decimal | TieredPrices, usage: Usage) -> Decimal:
    """The rate that the size of the input leads to."""
    if isinstance(rate, Decimal):
        return rate
    reached = [step.price for step in rate.tiers if usage.input_tokens > step.start]
    return reached[-1] if reached else rate.base


def price(
    model: str,
    provider: ProviderType,
    usage: Usage,
    *,
    tier: str = "",
    overrides: Overrides = NO_OVERRIDES,
) -> int | None:
    """The cost alone, in nano-dollars.

    >>> price("claude-sonnet-4-0", ProviderType.ANTHROPIC,
    ...       Usage(12307, 550, cache_write_tokens=12304))
    54399000
    """
    found = quote(model, provider, usage, tier=tier, overrides=overrides)
    return None if found is None else found.nano_usd


def worst_case(
    model: str,
    provider: ProviderType,
    *,
    input_tokens: int,
    output_tokens: int,
    cache_writes: bool = True,
    overrides: Overrides = NO_OVERRIDES,
) -> int | None:
    """Upper bound of a call's cost in nano-dollars at list prices; None without a price.

    `cache_writes`: the input may be written to a cache, at the dearest for an hour.
    """
    uses = [Usage(input_tokens, output_tokens)]
    if cache_writes:
        uses += [
            Usage(input_tokens, output_tokens, cache_write_tokens=input_tokens),
            Usage(
                input_tokens,
                output_tokens,
                cache_write_tokens=input_tokens,
                cache_write_1h_tokens=input_tokens,
            ),
        ]
    costs = [price(model, provider, usage, overrides=overrides) for usage in uses]
    return max((cost for cost in costs if cost is not None), default=None)
