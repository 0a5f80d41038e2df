"""What a simulated provider is told at its start."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from llmqueue_cli.simulate.distribution import Constant, Distribution
from llmqueue_cli.simulate.limits import Limits, TokenCounting
from llmqueue_cli.simulate.schedule import Rule

ShapeName = Literal["openai", "anthropic"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderOptions:
    """All times are seconds; a port of 0 takes a free one.

    A call takes `latency` + its output tokens × `seconds_per_token`.
    """

    shape: ShapeName = "openai"
    host: str = "127.0.0.1"
    port: int = 0
    limits: Limits = Limits()
    window_seconds: float = 60.0
    per_second: bool = False
    token_counting: TokenCounting | None = None
    """None: `keep` for openai, `correct` for anthropic."""
    count_refused: bool = False
    limit_headers: bool = True
    """False: answers say nothing of limits, but for the wait after a 429."""
    honour_idempotency: bool = False
    """Answer a key that was answered before with the same bytes, unbilled."""
    latency: Distribution = Constant(0.0)
    output_tokens: Distribution = Constant(50)
    """Before the request's own maximum is applied."""
    seconds_per_token: float = 0.0
    idle_seconds: float = 120.0
    """A kept-alive connection is closed after being idle for this long."""
    script: tuple[Rule, ...] = ()
    seed: int = field(default=0)

    @property
    def counting(self) -> TokenCounting:
        return self.token_counting or ("keep" if self.shape == "openai" else "correct")
