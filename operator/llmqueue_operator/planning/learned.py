"""Limits as the store keeps them now: what the provider's headers and 429s made of the declared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from llmqueue.config import Limit
from llmqueue.store.snapshots import BudgetSnapshot


def effective(limits: Sequence[Limit], store: BudgetSnapshot) -> tuple[Limit, ...]:
    """What claims go by, and so the plan."""
    kept = store.effective_limits
    return tuple(replace(limit, limit=kept.get(limit.name, limit.limit)) for limit in limits)


def difference(store: BudgetSnapshot) -> str:
    """What was learned, in words; empty where the declared limits hold."""
    learned = [
        f"{each.effective} {each.name} instead of {each.declared}"
        for each in store.limits
        if each.effective != each.declared
    ]
    return f"the provider allows {', '.join(learned)}" if learned else ""
