"""The ledger entry of one call: what was asked, used and paid. Pure.

The same compact record is the attempt as the job's readers see it. The store adds the fence, the
class and the cost, and what a failed answer said.
"""

from __future__ import annotations

from typing import Any

from llmqueue.outcome import Outcome, Usage
from llmqueue.states import OutcomeClass
from llmqueue.store.port import Grant

_OUTCOME_NOT_KNOWN = frozenset({OutcomeClass.UNKNOWN, OutcomeClass.CANCELLED})
_DETAILS = ("cached_tokens", "cache_write_tokens", "cache_write_1h_tokens", "reasoning_tokens")
_MILLISECOND_DIGITS = 3


def billed_usage(grant: Grant, outcome: Outcome) -> Usage | None:
    """The tokens to pay for; None where the provider does not bill the answer.

    An unknown outcome is booked at its worst case, the reservation: what a cut stream has shown is
    less than what the provider may have produced. A produced answer without usage is booked at its
    reservation too, since unknown is never 0.
    """
    if not outcome.sent:
        return None
    reserved = Usage(grant.input_tokens, grant.output_tokens, estimated=True)
    if outcome.kind in _OUTCOME_NOT_KNOWN:
        return reserved
    if outcome.usage is not None:
        return outcome.usage
    produced = outcome.kind in (OutcomeClass.SUCCESS, OutcomeClass.MALFORMED)
    return reserved if produced else None


def entry(
    grant: Grant,
    outcome: Outcome,
    *,
    call: int,
    started: float,
    finished: float,
    usage: Usage | None,
    price: str | None,
) -> dict[str, Any]:
    """The record of one call that was sent.

    Args:
        call: number of the call within its run, from 1.
        started, finished: Unix seconds.
        usage: as `billed_usage` says.
        price: the price that was used, as text; None = unpriced, or nothing to pay.
    """
    record: dict[str, Any] = {
        "job": grant.id,
        "call": call,
        "tenant": grant.tenant,
        "feature": grant.feature,
        "model": outcome.model or grant.model,
        "started": round(started, _MILLISECOND_DIGITS),
        "finished": round(finished, _MILLISECOND_DIGITS),
    }
    if usage is not None:
        record["input_tokens"] = usage.input_tokens
        record["output_tokens"] = usage.output_tokens
        for name in _DETAILS:
            if tokens := getattr(usage, name):
                record[name] = tokens
        if usage.estimated:
            record["estimated"] = True
    if price is not None:
        record["price"] = price
    if outcome.status is not None:
        record["status"] = outcome.status
    if outcome.request_id:
        record["request_id"] = outcome.request_id
    if grant.possible_duplicate:
        record["possible_duplicate"] = True
    if grant.correlation_id:
        record["correlation_id"] = grant.correlation_id
    return record
