"""Prices in integer nano-dollars: a resource's own, else genai-prices' offline data.

Unknown is None, never 0: a call without a price has no cost, and is never called cheap.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from types import MappingProxyType

from llmqueue.outcome import Usage
from llmqueue.pricing.rates import Overrides, Rates
from llmqueue.states import ProviderType

__all__ = ["NO_OVERRIDES", "Overrides", "Priced", "Rates", "price", "quote", "worst_case"]

NO_OVERRIDES: Overrides = MappingProxyType({})
_NANO = Decimal(10**9)
_PROVIDER_IDS = {ProviderType.OPENAI: "openai", ProviderType.ANTHROPIC: "anthropic"}
"""Compatible servers are many: there a model's name alone finds who sells it."""
_TIER_FACTORS: Mapping[str, Decimal] = {
    **dict.fromkeys(("", "auto", "default", "standard"), Decimal(1)),
    **dict.fromkeys(("flex", "batch"), Decimal("0.5")),
}
"""Source: OpenAI's and Anthropic's price lists. `priority` and `scale` differ by model and
contract: no price, unless the resource states one."""
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
    factor = _TIER_FACTORS.get(tier.lower())
    if factor is None or not model:
        return None
    return _published(model, provider, usage, factor)


def _published(model: str, provider: ProviderType, usage: Usage, factor: Decimal) -> Priced | None:
    """The list price times a factor."""
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
    try:
        with warnings.catch_warnings():
            # "No price for cache writes": they are billed as the input they are.
            warnings.simplefilter("ignore", UserWarning)
            found = calc_price(priced, model, provider_id=_PROVIDER_IDS.get(provider))
    except (LookupError, ValueError):
        return None
    nano_usd = int((found.total_price * factor * _NANO).to_integral_value(ROUND_CEILING))
    rates = " ".join(
        f"{name}={rate}"
        for field, name in _RATE_NAMES.items()
        if (rate := getattr(found.model_price, field, None)) is not None
    )
    times = "" if factor == 1 else f" x{factor}"
    return Priced(nano_usd, f"{found.provider.id}/{found.model.id} {rates}{times}")


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
