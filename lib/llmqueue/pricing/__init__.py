"""Prices in integer nano-dollars, behind genai-prices' offline data.

Unknown is None, never 0: a call without a price has no cost, and is never called cheap.
"""

from __future__ import annotations

from decimal import ROUND_CEILING, Decimal

from llmqueue.outcome import Usage
from llmqueue.states import ProviderType

_NANO = Decimal(10**9)
_PROVIDER_IDS = {ProviderType.OPENAI: "openai", ProviderType.ANTHROPIC: "anthropic"}


def price(model: str, provider: ProviderType, usage: Usage) -> int | None:
    """What a call with this usage costs, rounded up to a nano-dollar; None without a price.

    >>> price("claude-sonnet-4-0", ProviderType.ANTHROPIC,
    ...       Usage(12307, 550, cache_write_tokens=12304))
    54399000
    """
    # A second of loading: only processes that price something pay it.
    from genai_prices import Usage as PricedUsage  # noqa: PLC0415
    from genai_prices import calc_price  # noqa: PLC0415

    priced = PricedUsage(
        input_tokens=usage.input_tokens,
        cache_read_tokens=usage.cached_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        output_tokens=usage.output_tokens,
    )
    try:
        found = calc_price(priced, model, provider_id=_PROVIDER_IDS.get(provider))
    except (LookupError, ValueError):
        return None
    return int((found.total_price * _NANO).to_integral_value(ROUND_CEILING))


def worst_case(
    model: str, provider: ProviderType, *, input_tokens: int, output_tokens: int
) -> int | None:
    """Upper bound of a call's cost in nano-dollars; cache writes are the dearest input."""
    usage = Usage(input_tokens, output_tokens)
    plain = price(model, provider, usage)
    if plain is None or provider is not ProviderType.ANTHROPIC:
        return plain
    written = Usage(input_tokens, output_tokens, cache_write_tokens=input_tokens)
    return max(plain, price(model, provider, written) or plain)
