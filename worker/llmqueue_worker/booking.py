"""From an outcome to what is settled: ledger entry, cost, bounds."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import replace

from llmqueue import ledger, pricing
from llmqueue.job import MAX_RESULT_BYTES
from llmqueue.outcome import Outcome, Usage
from llmqueue.pricing import Priced
from llmqueue.states import OutcomeClass, ProviderType
from llmqueue.store.port import Grant, Settlement
from llmqueue_worker.attempt import Attempt

Pricing = Callable[[str, Usage, str], Priced | None]
"""(model, usage, service tier of the answer) → cost; None where no price is known."""


def unpriced(_model: str, _usage: Usage, _tier: str) -> None:
    """No price is known: cost null, never 0."""


def pricing_of(provider: ProviderType) -> Pricing:
    """The shared prices of a provider's models."""

    def quoted(model: str, usage: Usage, tier: str) -> Priced | None:
        return pricing.quote(model, provider, usage, tier=tier)

    return quoted


def load_prices(provider: ProviderType) -> None:
    """Read the price data now: it takes a second, and no answer should wait for it."""
    pricing.price("any", provider, Usage(0, 0))


def bounded(outcome: Outcome) -> Outcome:
    """A result above its bound cannot be kept; the call was made and is paid for."""
    if outcome.result is None or len(outcome.result) <= MAX_RESULT_BYTES:
        return outcome
    return replace(
        outcome,
        kind=OutcomeClass.PERMANENT,
        result=None,
        code="result_too_large",
        message=f"the result has {len(outcome.result)} bytes, at most {MAX_RESULT_BYTES} are kept",
    )


class Bookkeeper:
    """Makes settlements. `clock` gives Unix seconds."""

    def __init__(
        self, quote: Pricing = unpriced, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._quote = quote
        self._clock = clock

    def settlement(self, attempt: Attempt, outcome: Outcome, *, seconds: float) -> Settlement:
        """What the attempt, or its present call, came to; `seconds` the call took."""
        outcome = bounded(outcome)
        grant, jitter = attempt.call.grant, random.random()
        if not outcome.sent:
            return Settlement(
                grant.id,
                grant.fence,
                outcome,
                credential=attempt.credential.fingerprint,
                jitter=jitter,
            )
        usage = ledger.billed_usage(grant, outcome)
        cost, price = self._cost(grant, outcome, usage)
        finished = self._clock()
        return Settlement(
            grant.id,
            grant.fence,
            outcome,
            credential=attempt.credential.fingerprint,
            entry=ledger.entry(
                grant,
                outcome,
                call=attempt.call.number,
                started=finished - seconds,
                finished=finished,
                usage=usage,
                price=price,
            ),
            cost_nano_usd=cost,
            jitter=jitter,
        )

    def _cost(
        self, grant: Grant, outcome: Outcome, usage: Usage | None
    ) -> tuple[int | None, str | None]:
        """Nano-dollars, and the price used; both None where no price is known."""
        if usage is None:
            return 0, None
        priced = self._quote(outcome.model or grant.model, usage, outcome.service_tier)
        return (priced.nano_usd, priced.price) if priced else (None, None)
