"""From an outcome to what is settled: ledger entry, cost, bounds."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from llmqueue import ledger, pricing
from llmqueue.job import MAX_RESULT_BYTES
from llmqueue.outcome import Outcome, Usage
from llmqueue.states import OutcomeClass, ProviderType
from llmqueue.store.port import Settlement
from llmqueue_worker.attempt import Attempt


@dataclass(frozen=True, slots=True)
class Cost:
    """What a call costs, and by which price; both None where no price is known."""

    nano_usd: int | None
    price: str | None


UNPRICED = Cost(None, None)
Pricing = Callable[[str, Usage, str], Cost]
"""(model, usage, service tier) → cost."""


def unpriced(_model: str, _usage: Usage, _tier: str) -> Cost:
    """No price is known: cost null, never 0."""
    return UNPRICED


def pricing_of(provider: ProviderType) -> Pricing:
    """The shared prices of a provider's models."""

    def cost(model: str, usage: Usage, _tier: str) -> Cost:
        return Cost(pricing.price(model, provider, usage), None)

    return cost


def load_prices(provider: ProviderType) -> None:
    """Read the price data now: it takes a second, and no answer should wait for it."""
    pricing.price("", provider, Usage(0, 0))


def _bounded(outcome: Outcome) -> Outcome:
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
        self, cost_of: Pricing = unpriced, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._cost_of = cost_of
        self._clock = clock

    def settlement(self, attempt: Attempt, outcome: Outcome, *, seconds: float) -> Settlement:
        """What the attempt came to; `seconds` it took."""
        outcome = _bounded(outcome)
        grant, jitter = attempt.grant, random.random()
        if not outcome.sent:
            return Settlement(
                grant.id,
                grant.fence,
                outcome,
                credential=attempt.credential.fingerprint,
                jitter=jitter,
            )
        usage = ledger.billed_usage(grant, outcome)
        cost = Cost(0, None)
        if usage is not None:
            cost = self._cost_of(outcome.model or grant.model, usage, outcome.service_tier)
        finished = self._clock()
        return Settlement(
            grant.id,
            grant.fence,
            outcome,
            credential=attempt.credential.fingerprint,
            entry=ledger.entry(
                grant,
                outcome,
                call=1,
                started=finished - seconds,
                finished=finished,
                usage=usage,
                price=cost.price,
            ),
            cost_nano_usd=cost.nano_usd,
            jitter=jitter,
        )
