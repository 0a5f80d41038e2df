"""The ledger entry of one call: what it was, how long, what it used. Also the attempt's record."""

from __future__ import annotations

from typing import Any

from llmqueue.outcome import Outcome
from llmqueue.store.port import Grant


def ledger_entry(
    grant: Grant, outcome: Outcome, *, worker: str, started: float, finished: float, call: int = 1
) -> dict[str, Any] | None:
    """A compact entry (times in Unix seconds); None where nothing was sent."""
    if not outcome.sent:
        return None
    usage = outcome.usage
    entry: dict[str, Any] = {
        "job": grant.id,
        "call": call,
        "tenant": grant.tenant,
        "feature": grant.feature,
        "model": outcome.model or grant.model,
        "started": round(started, 3),
        "finished": round(finished, 3),
        "status": outcome.status,
        "request_id": outcome.request_id,
        "worker": worker,
        "input_tokens": usage.input_tokens if usage else None,
        "output_tokens": usage.output_tokens if usage else None,
        "cached_tokens": usage.cached_tokens if usage else 0,
        "cache_write_tokens": usage.cache_write_tokens if usage else 0,
        "reasoning_tokens": usage.reasoning_tokens if usage else 0,
        "estimated": bool(usage and usage.estimated),
        "possible_duplicate": grant.possible_duplicate,
    }
    return {name: value for name, value in entry.items() if value is not None and value != ""}
