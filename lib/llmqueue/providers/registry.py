"""Provider types and the code that speaks them."""

from __future__ import annotations

from functools import cache

from llmqueue.providers.port import Provider
from llmqueue.states import ProviderType


@cache
def get_provider(kind: ProviderType) -> Provider:
    """The provider of a type; loaded when first asked for."""
    if kind is ProviderType.ANTHROPIC:
        from llmqueue.providers.anthropic import AnthropicProvider  # noqa: PLC0415

        return AnthropicProvider()
    from llmqueue.providers.openai import OpenAIProvider  # noqa: PLC0415

    return OpenAIProvider(kind)
