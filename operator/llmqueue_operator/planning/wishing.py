"""The formula applied to one queue: the wish without memory, and what binds it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from llmqueue_operator.planning.formula import (
    backlog_for_wait,
    clamp,
    demand,
    room,
    rounded_cap,
    steady_cap,
    sustained_calls,
    unrounded_cap,
)
from llmqueue_operator.planning.history import History
from llmqueue_operator.planning.supply import Supply
from llmqueue_operator.planning.types import BoundBy, QueueInput, ScalingSpec
from llmqueue_operator.planning.work import Work
from llmqueue_operator.planning.workforce import Workforce


@dataclass(frozen=True, slots=True)
class Wish:
    """`workers` is how many are wanted, and what the target may rise to.

    `keep` is how many are worth keeping: the cap with hysteresis, and without the calls of
    draining workers, which must not make still more workers drain.
    """

    workers: int
    keep: int
    bound_by: BoundBy


def wish_for(
    queue: QueueInput, target: int, *, work: Work, history: History, supply: Supply, crew: Workforce
) -> Wish:
    """What the queue wants; `target` is the last one, for the hysteresis only."""
    scaling = queue.scaling
    slots = scaling.slots_per_worker
    in_flight = sustained_calls(supply.rate, history.slot_seconds)
    raw = unrounded_cap(in_flight, supply.max_in_flight, slots)
    left = room(
        raw,
        slots,
        stayers=len(crew.present) - len(crew.marked),
        marked_in_flight=[m.in_flight for m in crew.marked],
        leaving_in_flight=crew.leaving_in_flight,
    )
    needed = demand(_backlog(scaling, work, history), slots)
    cap = rounded_cap(left, supply.rate)
    kept_cap = steady_cap(raw, supply.rate, target)
    low, high = scaling.min_replicas, scaling.max_replicas
    by_in_flight = supply.max_in_flight < in_flight + math.sqrt(in_flight)
    limit = supply.in_flight_bound_by if by_in_flight else supply.bound_by
    below = BoundBy.BACKLOG if needed > 0 else BoundBy.IDLE
    if work.held_back > 0:
        below = supply.allowance.bound_by
    return Wish(
        workers=clamp(min(needed, cap), low, high),
        keep=clamp(min(needed, kept_cap), low, high),
        bound_by=_bound_by(scaling, needed, cap, limit, below=below),
    )


def _backlog(scaling: ScalingSpec, work: Work, history: History) -> float:
    if scaling.target_queue_wait_seconds is None:
        return work.backlog
    return backlog_for_wait(
        work.backlog,
        in_flight=work.staying,
        ready=work.waiting,
        arrivals_per_second=history.arrivals_per_second,
        target_queue_wait_seconds=scaling.target_queue_wait_seconds,
        slot_seconds=history.slot_seconds,
    )


def _bound_by(
    scaling: ScalingSpec, needed: int, cap: float, limit: BoundBy, *, below: BoundBy
) -> BoundBy:
    """`limit` is behind the cap, `below` behind what is needed where that is less."""
    wanted = min(needed, cap)
    if wanted > scaling.max_replicas:
        return BoundBy.MAX_REPLICAS
    if wanted < scaling.min_replicas:
        return BoundBy.MIN_REPLICAS
    return limit if needed > cap else below
