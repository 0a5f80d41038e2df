"""The planner's entry: one budget group, one tick."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from llmqueue.store.snapshots import BudgetSnapshot, QueueSnapshot
from llmqueue_operator.planning.formula import clamp
from llmqueue_operator.planning.history import observe
from llmqueue_operator.planning.learned import effective
from llmqueue_operator.planning.queue_plan import Situation, hold_queue, plan_queue
from llmqueue_operator.planning.reasons import Reason
from llmqueue_operator.planning.seeding import seed_queue
from llmqueue_operator.planning.supply import Party, allowed, supplies
from llmqueue_operator.planning.trouble import Hold, needs_configuration, store_hold
from llmqueue_operator.planning.types import (
    GroupSnapshot,
    Memory,
    Plan,
    QueueInput,
    QueueMemory,
    QueuePlan,
    Remembered,
)
from llmqueue_operator.planning.work import work_of
from llmqueue_operator.planning.workforce import Workforce, muster


@dataclass(frozen=True, slots=True)
class _Seat:
    """A queue of the group, joined with what the store and the pods say."""

    party: Party
    crew: Workforce
    memory: QueueMemory


def plan(snapshot: GroupSnapshot, memory: Memory, now: float) -> Plan:
    """Decide for all queues of one budget.

    `now` is any clock in seconds that does not step back; the memory returned is the next tick's.
    A queue that memory does not know is seeded from what its runner asks for.
    """
    hold, after = store_hold(snapshot, memory, now)
    remembered = {
        q.queue: memory.queues.get(q.queue) or seed_queue(q, Remembered(), now)
        for q in snapshot.queues
    }
    if hold is not None or snapshot.store is None:
        why = hold or Hold(Reason.STORE_UNAVAILABLE, snapshot.store_error)
        outcomes = [_hold(q, remembered[q.queue], why, memory, now) for q in snapshot.queues]
        after = replace(after, outage_raised=why.reason is Reason.STORE_UNAVAILABLE)
    else:
        blind = after.blind_until is not None
        outcomes = _plan_all(snapshot, snapshot.store, remembered, now, blind=blind)
    return Plan(
        queues=tuple(made for made, _ in outcomes),
        memory=replace(after, queues={made.queue: kept for made, kept in outcomes}),
        reconfigure=needs_configuration(snapshot, memory),
    )


def _plan_all(
    snapshot: GroupSnapshot,
    store: BudgetSnapshot,
    remembered: Mapping[str, QueueMemory],
    now: float,
    *,
    blind: bool,
) -> list[tuple[QueuePlan, QueueMemory]]:
    seen = {q.queue: q for q in store.queues}
    seats = {
        q.queue: _seat(q, store, seen[q.queue], remembered[q.queue], now, blind=blind)
        for q in snapshot.queues
        if q.queue in seen
    }
    limits = effective(snapshot.limits, store)
    parties = allowed(limits, store, [seat.party for seat in seats.values()])
    supply = supplies(limits, snapshot.max_in_flight, parties)
    by_queue = {party.queue.queue: party for party in parties}
    unknown = Hold(Reason.STORE_UNCONFIGURED, "the store does not know this queue yet")
    outcomes: list[tuple[QueuePlan, QueueMemory]] = []
    for queue in snapshot.queues:
        seat = seats.get(queue.queue)
        if seat is None:
            outcomes.append(hold_queue(queue, remembered[queue.queue], unknown))
            continue
        situation = Situation(
            queue=queue,
            store=store,
            crew=seat.crew,
            history=seat.party.history,
            work=by_queue[queue.queue].work,
            supply=supply[queue.queue],
        )
        outcomes.append(plan_queue(situation, seat.memory, now))
    return outcomes


def _seat(
    queue: QueueInput,
    store: BudgetSnapshot,
    seen: QueueSnapshot,
    memory: QueueMemory,
    now: float,
    *,
    blind: bool,
) -> _Seat:
    crew = muster(queue.pods, store.workers, blind=blind)
    history, memory = observe(queue, memory, seen, now)
    return _Seat(Party(queue, history, work_of(seen, crew.draining_in_flight)), crew, memory)


def _hold(
    queue: QueueInput, memory: QueueMemory, hold: Hold, group: Memory, now: float
) -> tuple[QueuePlan, QueueMemory]:
    """Hold one queue, after the one rise that an outage or a person may ask for."""
    scaling = queue.scaling
    target = memory.target
    outage = hold.reason is Reason.STORE_UNAVAILABLE
    if scaling.replicas_override is not None:
        target = clamp(scaling.replicas_override, 0, scaling.max_replicas)
    elif outage and scaling.on_outage == "AtLeast" and not group.outage_raised:
        target = max(target, min(scaling.on_outage_replicas, scaling.max_replicas))
    if target > memory.target:
        memory = replace(memory, last_up=now)
    return hold_queue(queue, replace(memory, target=target), hold)
