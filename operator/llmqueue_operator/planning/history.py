"""What a queue's counters say over time: slot time and charge per grant, arrivals.

W and the expected charges are taken over at least the last 200 grants, with a prior that weighs as
much as 10 grants.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from llmqueue.states import LimitUnit
from llmqueue.store.snapshots import QueueSnapshot
from llmqueue_operator.planning.types import QueueInput, QueueMemory

PRIOR_GRANTS = 10
BASE_GRANTS = 200
MIN_SLOT_SECONDS = 0.001
ARRIVAL_STEP_SECONDS = 5.0
ARRIVAL_WINDOW_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class History:
    """`slot_seconds` is W; `charge` maps a unit to its expected amount per grant, where known."""

    slot_seconds: float
    charge: Mapping[str, float]
    arrivals_per_second: float


def observe(
    queue: QueueInput, memory: QueueMemory, seen: QueueSnapshot, now: float
) -> tuple[History, QueueMemory]:
    """Read the counters; returns what they say and the memory that carries the base on."""
    memory = _rebase(_base(memory, seen), seen, queue.scaling.expected_call_seconds)
    arrivals = _arrivals(memory.arrivals, now, seen.enqueued)
    memory = replace(memory, arrivals=arrivals)
    first_time, first = arrivals[0]
    history = History(
        slot_seconds=slot_seconds(memory, seen, queue.scaling.expected_call_seconds),
        charge=_charge(queue, memory, seen),
        arrivals_per_second=(seen.enqueued - first) / max(now - first_time, ARRIVAL_STEP_SECONDS),
    )
    return history, memory


def slot_seconds(memory: QueueMemory, seen: QueueSnapshot, expected_call_seconds: float) -> float:
    """W = (n0·W0 + Δbusy) / (n0 + Δgrants); `busy_ms` has running calls in it from their first
    second, so W is right long before enough calls have ended."""
    prior = memory.slot_seconds if memory.slot_seconds is not None else expected_call_seconds
    busy_seconds = (seen.busy_ms - memory.base_busy_ms) / 1000
    grants = seen.grants - memory.base_grants
    mean = (PRIOR_GRANTS * prior + max(0.0, busy_seconds)) / (PRIOR_GRANTS + grants)
    return max(mean, MIN_SLOT_SECONDS)


def _base(memory: QueueMemory, seen: QueueSnapshot) -> QueueMemory:
    """Find a base for memory that has none: after a restart, or when the counters began anew.

    A known W after a restart stands for the last 200 grants, so that a restart changes nothing.
    """
    if memory.based and seen.grants >= memory.next_grants >= memory.base_grants:
        return memory
    known = memory.slot_seconds
    if memory.based or known is None or seen.grants < BASE_GRANTS:
        prior = known if memory.based else None
        return replace(
            memory, based=True, slot_seconds=prior, base_busy_ms=0, base_grants=0, base_charged={},
            next_busy_ms=0, next_grants=0, next_charged={},
        )  # fmt: skip
    earlier = 1 - BASE_GRANTS / seen.grants
    return replace(
        memory,
        based=True,
        base_grants=seen.grants - BASE_GRANTS,
        base_busy_ms=seen.busy_ms - round(BASE_GRANTS * known * 1000),
        base_charged={unit: round(amount * earlier) for unit, amount in seen.charged.items()},
        next_grants=seen.grants,
        next_busy_ms=seen.busy_ms,
        next_charged=dict(seen.charged),
    )


def _rebase(memory: QueueMemory, seen: QueueSnapshot, expected: float) -> QueueMemory:
    """Move the base on, once 200 grants lie behind the one that waits."""
    if seen.grants - memory.next_grants < BASE_GRANTS:
        return memory
    return replace(
        memory,
        slot_seconds=slot_seconds(memory, seen, expected),
        base_busy_ms=memory.next_busy_ms,
        base_grants=memory.next_grants,
        base_charged=memory.next_charged,
        next_busy_ms=seen.busy_ms,
        next_grants=seen.grants,
        next_charged=dict(seen.charged),
    )


def _charge(queue: QueueInput, memory: QueueMemory, seen: QueueSnapshot) -> dict[str, float]:
    grants = seen.grants - memory.base_grants
    expected: dict[str, float] = {LimitUnit.REQUESTS: 1.0, **queue.expected_charge}
    charge: dict[str, float] = {}
    for unit in LimitUnit:
        charged = max(0, seen.charged.get(unit, 0) - memory.base_charged.get(unit, 0))
        prior = expected.get(unit)
        if prior is not None:
            charge[unit] = (PRIOR_GRANTS * prior + charged) / (PRIOR_GRANTS + grants)
        elif grants > 0:
            charge[unit] = charged / grants
    return charge


def _arrivals(
    kept: tuple[tuple[float, int], ...], now: float, enqueued: int
) -> tuple[tuple[float, int], ...]:
    """Samples of `enqueued`, a step apart, that span the window; the first is where it begins."""
    if kept and enqueued < kept[-1][1]:
        kept = ()
    if not kept or now - kept[-1][0] >= ARRIVAL_STEP_SECONDS:
        kept = (*kept, (now, enqueued))
    begin = now - ARRIVAL_WINDOW_SECONDS
    while len(kept) > 1 and kept[1][0] <= begin:
        kept = kept[1:]
    return kept
