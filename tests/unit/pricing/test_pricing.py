"""Prices in nano-dollars."""

from __future__ import annotations

from llmqueue.outcome import Usage
from llmqueue.pricing import price, worst_case
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


def test_worst_case_is_a_bound() -> None:
    usage = Usage(1000, 100, cache_write_tokens=1000)
    model = "claude-sonnet-4-0"
    bound = worst_case(model, ProviderType.ANTHROPIC, input_tokens=1000, output_tokens=100)
    assert bound == price(model, ProviderType.ANTHROPIC, usage)
