"""Queues whose manifest names another budget than before.

Jobs lie with their budget, so a queue that moves leaves its jobs behind. Kubernetes refuses the
change; files can be edited between two runs too, so the store is asked.
"""

from __future__ import annotations

from collections.abc import Iterable

from llmqueue.errors import InvalidResource
from llmqueue.states import TERMINAL_STATES
from llmqueue.store.port import IntakeStore
from llmqueue_cli.local.deployment import LocalGroup


async def refuse_moves(store: IntakeStore, groups: Iterable[LocalGroup]) -> None:
    """Raises InvalidResource where a queue would leave unfinished jobs behind; StoreError."""
    known = await store.registry()
    for queue in (item.config for group in groups for item in group.queues):
        before = known.get(queue.queue)
        if before is None or before.config.budget == queue.budget:
            continue
        states = (await store.queue_status(queue.queue))["states"]
        left = sum(count for state, count in states.items() if state not in TERMINAL_STATES)
        if left:
            raise InvalidResource(
                f"{queue.queue}: spec.limits.sharedBudget: cannot be joined, left or changed while"
                f" {left} jobs are not finished: let them finish with the manifest of before, or"
                " cancel them, or give the queue another name"
            )
