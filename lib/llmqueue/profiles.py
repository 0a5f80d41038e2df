"""What is known of a provider before a call is made: where it is, and how it counts tokens.

Base URLs are those of the providers' own SDKs, so that OPENAI_BASE_URL and ANTHROPIC_BASE_URL mean
the same: OpenAI's paths follow `/v1`, Anthropic's begin with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from llmqueue.config import TokenAccounting, TokenRule
from llmqueue.states import ProviderType


@dataclass(frozen=True, slots=True)
class ProviderProfile:
    """Facts of one provider type.

    Attributes:
        default_base_url: what the provider's own SDK uses; None = the resource must say.
        token_rule: how a reservation in `tokens` follows from input and output estimates.
        token_accounting: whether the provider counts the reservation or the actual usage.
        learned_output: reserve a learned high quantile of output tokens, not the maximum.
        header_window_seconds: window of limits in headers that do not tell it; None = unknown.
    """

    default_base_url: str | None
    token_rule: TokenRule
    token_accounting: TokenAccounting
    learned_output: bool
    header_window_seconds: int | None = None


PROFILES: Mapping[ProviderType, ProviderProfile] = MappingProxyType(
    {
        ProviderType.OPENAI: ProviderProfile("https://api.openai.com/v1", "max", "keep", False, 60),
        ProviderType.ANTHROPIC: ProviderProfile(
            "https://api.anthropic.com", "sum", "correct", True, 60
        ),
        # Servers count in their own ways; the sum is a bound of them all.
        ProviderType.OPENAI_COMPATIBLE: ProviderProfile(None, "sum", "keep", False),
    }
)
