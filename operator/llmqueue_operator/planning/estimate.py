"""What a queue can expect: calls a minute, and when its backlog is done."""

from __future__ import annotations

import math
from collections.abc import Sequence

from llmqueue.states import LimitUnit
from llmqueue.store.snapshots import BudgetSnapshot, PauseView
from llmqueue_operator.planning.history import History
from llmqueue_operator.planning.supply import Supply
from llmqueue_operator.planning.work import Work


def effective_rpm(supply: Supply, store: BudgetSnapshot, history: History) -> float:
    """Requests a minute that the budget grants this queue now; 0.0 where no limit is known, or
    nothing is left of a day."""
    if math.isinf(supply.rate) or supply.allowance.grants < 1:
        return 0.0
    return 60 * supply.rate * store.rate_factor * history.charge.get(LimitUnit.REQUESTS, 1.0)


def eta_seconds(
    work: Work,
    supply: Supply,
    store: BudgetSnapshot,
    history: History,
    *,
    pauses: Sequence[PauseView],
    slots: int,
) -> float | None:
    """When all waiting and running jobs are done at this rate, on `slots` slots.

    None where no end can be foretold: no worker, a paused credential, a suspended queue.
    """
    jobs = work.waiting + work.held_back + work.kept
    if work.in_flight + jobs == 0:
        return 0.0 if work.wants_grants else None
    if not work.wants_grants or pauses:
        return None
    rate = min(supply.rate * store.rate_factor, slots / history.slot_seconds)
    if jobs == 0:
        return history.slot_seconds
    if rate <= 0:
        return None  # nobody works, or a ramp begins at nothing
    closed = max(store.blocked_seconds, store.breaker_seconds if store.breaker == "open" else 0.0)
    allowed = supply.allowance.seconds_until(jobs)
    if math.isinf(allowed):
        return None
    last = supply.allowance.last_of(jobs)
    return max(closed + max(jobs / rate, history.slot_seconds), allowed + last / rate)
