"""Prices in nano-dollars."""

from __future__ import annotations

import subprocess
import sys

import pytest

from llmqueue.outcome import Usage
from llmqueue.pricing import Priced, Rates, price, quote, worst_case
from llmqueue.states import ProviderType


def test_golden_cache_creation() -> None:
    """P28: 3 input, 12,304 cache creation, 550 output on Claude Sonnet 4 = $0.054399 exactly."""
    usage = Usage(12_307, 550, cache_write_tokens=12_304)
    assert price("claude-sonnet-4-20250514", ProviderType.ANTHROPIC, usage) == 54_399_000


def test_reasoning_is_inside_the_output() -> None:
    """P29: OpenAI prompt 500, completion 500 of which 200 reasoning: bill 500."""
    with_reasoning = price("gpt-4o", ProviderType.OPENAI, Usage(500, 500, reasoning_tokens=200))
    assert with_reasoning == price("gpt-4o", ProviderType.OPENAI, Usage(500, 500))


def test_unknown_model_has_no_price() -> None:
    """P30: unknown is None, never 0."""
    assert price("nobody-knows-it", ProviderType.OPENAI, Usage(1, 1)) is None
    assert (
        worst_case("nobody-knows-it", ProviderType.OPENAI, input_tokens=1, output_tokens=1) is None
    )


HOUR = Usage(1000, 100, cache_write_tokens=1000, cache_write_1h_tokens=1000)
SONNET = "claude-sonnet-4-0"


@pytest.mark.parametrize(
    ("cache_writes", "dearest"),
    [
        pytest.param(True, HOUR, id="cached-for-an-hour"),
        pytest.param(False, Usage(1000, 100), id="nothing-cached"),
    ],
)
def test_worst_case_is_a_bound(cache_writes: bool, dearest: Usage) -> None:
    bound = worst_case(
        SONNET,
        ProviderType.ANTHROPIC,
        input_tokens=1000,
        output_tokens=100,
        cache_writes=cache_writes,
    )
    assert bound == price(SONNET, ProviderType.ANTHROPIC, dearest)


def test_hour_long_cache_writes_cost_twice_the_input() -> None:
    cost = price(SONNET, ProviderType.ANTHROPIC, Usage(1000, 0, 0, 1000, cache_write_1h_tokens=400))
    assert cost == 600 * 3_750 + 400 * 6_000


def test_cached_input_without_a_price_of_its_own_is_input() -> None:
    """No warning either: warnings are errors here."""
    model = "gpt-4-turbo"
    cached = price(model, ProviderType.OPENAI, Usage(1000, 10, cached_tokens=900))
    assert cached == price(model, ProviderType.OPENAI, Usage(1000, 10))


@pytest.mark.parametrize(
    ("model", "provider", "tier", "times"),
    [
        *(("gpt-5", ProviderType.OPENAI, tier, 1.0) for tier in ("", "auto", "default", "Default")),
        ("gpt-5", ProviderType.OPENAI, "flex", 0.5),
        ("gpt-5", ProviderType.OPENAI, "batch", 0.5),
        ("gpt-5", ProviderType.OPENAI, "priority", 2.0),
        ("gpt-5", ProviderType.OPENAI, "what", None),
        ("gpt-4o", ProviderType.OPENAI, "flex", None),
        ("claude-opus-4-5", ProviderType.ANTHROPIC, "standard", 1.0),
        ("claude-opus-4-5", ProviderType.ANTHROPIC, "batch", 0.5),
        ("claude-opus-4-5", ProviderType.ANTHROPIC, "priority", None),
        ("deepseek-chat", ProviderType.OPENAI_COMPATIBLE, "on_demand", 1.0),
        ("deepseek-chat", ProviderType.OPENAI_COMPATIBLE, "flex", None),
    ],
)
def test_the_answers_tier_sets_the_price(
    model: str, provider: ProviderType, tier: str, times: float | None
) -> None:
    """A tier whose price isn't known for the model has none: not the list price, and not 0."""
    listed = price(model, provider, Usage(1000, 1000))
    assert listed is not None
    found = price(model, provider, Usage(1000, 1000), tier=tier)
    assert found == (None if times is None else listed * times)


@pytest.mark.parametrize(
    ("model", "input_tokens", "tier", "nano_usd", "used"),
    [
        ("gpt-4o-2024-08-06", 1000, "", 2_500_000, "gpt-4o in=2.5 cached=1.25 out=10"),
        ("gpt-5", 1000, "flex", 625_000, "gpt-5 in=0.625 cached=0.0625 out=5 (flex)"),
        ("gpt-5.4", 272_000, "", 680_000_000, "gpt-5.4 in=2.5 cached=0.25 out=15"),
        ("gpt-5.4", 300_000, "", 1_500_000_000, "gpt-5.4 in=5 cached=0.5 out=22.5"),
    ],
    ids=["list", "tier", "at-the-step", "long-input"],
)
def test_a_quote_names_the_price_used(
    model: str, input_tokens: int, tier: str, nano_usd: int, used: str
) -> None:
    found = quote(model, ProviderType.OPENAI, Usage(input_tokens, 0), tier=tier)
    assert found == Priced(nano_usd, f"openai/{used}")


def test_an_override_comes_first() -> None:
    """P30: a configured price, for models nobody knows too, at any tier."""
    own = {"ours": Rates(1_000_000_000, 2_000_000_000, cached_input_nano_usd=100_000_000)}
    usage = Usage(1000, 10, cached_tokens=400)
    found = quote("ours", ProviderType.OPENAI_COMPATIBLE, usage, tier="priority", overrides=own)
    assert found == Priced(600_000 + 40_000 + 20_000, "ours in=1 cached=0.1 out=2 (own)")
    assert price("other", ProviderType.OPENAI_COMPATIBLE, usage, overrides=own) is None


@pytest.mark.parametrize(
    ("usage", "nano_usd"),
    [
        pytest.param(Usage(1, 0), 1, id="rounded-up"),
        pytest.param(Usage(0, 0), 0, id="an-explicit-zero"),
        pytest.param(Usage(2_000_000, 0), 6, id="input"),
        pytest.param(Usage(2_000_000, 0, cache_write_tokens=1_000_000), 3 + 4, id="written"),
        pytest.param(Usage(2_000_000, 0, cached_tokens=1_000_000), 3 + 3, id="cached-as-input"),
        pytest.param(Usage(0, 1_000_000), 5, id="output"),
    ],
)
def test_own_rates_are_exact(usage: Usage, nano_usd: int) -> None:
    assert Rates(3, 5, cache_write_nano_usd=4).cost_nano_usd(usage) == nano_usd


def test_compatible_servers_are_found_by_the_models_name() -> None:
    cost = price("deepseek-chat", ProviderType.OPENAI_COMPATIBLE, Usage(1_000_000, 0))
    assert cost is not None
    assert cost > 0


def test_importing_is_cheap() -> None:
    """The price data takes a second: whoever prices nothing must not wait for it."""
    code = "import sys, llmqueue.pricing; sys.exit('genai_prices' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
