"""What the budget lets each queue of a group use: grants a second, calls in flight, what binds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from llmqueue.config import Limit
from llmqueue.states import LimitUnit
from llmqueue.store.snapshots import BudgetSnapshot
from llmqueue_operator.planning.allowance import UNBOUNDED, Allowance, Applicant, allowances
from llmqueue_operator.planning.formula import usable_per_second
from llmqueue_operator.planning.history import History
from llmqueue_operator.planning.shares import HORIZON_SECONDS, Claimant, shares
from llmqueue_operator.planning.types import BoundBy, QueueInput
from llmqueue_operator.planning.work import Work

_BOUND_BY_UNIT = {
    LimitUnit.REQUESTS: BoundBy.REQUESTS_PER_MINUTE,
    LimitUnit.INPUT_TOKENS: BoundBy.INPUT_TOKENS,
    LimitUnit.OUTPUT_TOKENS: BoundBy.OUTPUT_TOKENS,
    LimitUnit.TOKENS: BoundBy.TOKENS,
}


@dataclass(frozen=True, slots=True)
class Supply:
    """`rate` in grants/s and `max_in_flight` in calls (inf: nothing known limits it); `bound_by` is
    the limit behind `rate`, and `in_flight_bound_by` the one behind `max_in_flight`; `allowance` is
    how many grants are left of the day."""

    rate: float
    bound_by: BoundBy
    max_in_flight: float
    in_flight_bound_by: BoundBy
    allowance: Allowance = UNBOUNDED


@dataclass(frozen=True, slots=True)
class Party:
    """One queue of the group, with what it wants."""

    queue: QueueInput
    history: History
    work: Work
    allowance: Allowance = UNBOUNDED

    def wanted_per_second(self, unit: str) -> float:
        """Units a second that it could use: arrivals, and its backlog over the horizon."""
        grants = self.history.arrivals_per_second + self.work.waiting / HORIZON_SECONDS
        if not self.work.wants_grants or self.allowance.grants < 1:
            return 0.0
        return grants * self.history.charge.get(unit, 0.0)


def supplies(
    limits: Sequence[Limit], max_in_flight: int | None, parties: Sequence[Party]
) -> Mapping[str, Supply]:
    """Divide the budget; queue id → its supply."""
    per_limit = [_divide(limit, parties) for limit in limits if limit.paced]
    in_flight: list[float] = [math.inf] * len(parties)
    if max_in_flight is not None:
        wants = [Claimant(float(p.work.total), p.queue.weight) for p in parties]
        in_flight = shares(float(max_in_flight), wants)
    answer: dict[str, Supply] = {}
    for i, party in enumerate(parties):
        rate, bound_by = min(
            (rates[i] for rates in per_limit),
            key=lambda bound: bound[0],
            default=(math.inf, BoundBy.BACKLOG),
        )
        shared = max_in_flight is not None and in_flight[i] < max_in_flight
        in_flight_bound_by = BoundBy.SHARE if shared else BoundBy.IN_FLIGHT
        answer[party.queue.queue] = Supply(
            rate, bound_by, in_flight[i], in_flight_bound_by, party.allowance
        )
    return answer


def allowed(
    limits: Sequence[Limit], store: BudgetSnapshot, parties: Sequence[Party]
) -> list[Party]:
    """The parties, each with what the limits of the day leave it and its work within that."""
    applicants = [
        Applicant(
            float(party.work.waiting),
            party.history.charge,
            party.queue.weight,
            party.queue.scaling.pod_start_seconds,
        )
        for party in parties
    ]
    return [
        replace(party, work=party.work.within(allowance.grants), allowance=allowance)
        for party, allowance in zip(parties, allowances(limits, store, applicants), strict=True)
    ]


def _divide(limit: Limit, parties: Sequence[Party]) -> list[tuple[float, BoundBy]]:
    """Grants a second that each queue may make under one limit."""
    capacity = usable_per_second(limit)
    wants = [Claimant(p.wanted_per_second(limit.unit), p.queue.weight) for p in parties]
    bounds: list[tuple[float, BoundBy]] = []
    for party, share in zip(parties, shares(capacity, wants), strict=True):
        use = party.queue.scaling.target_utilization_percent / 100
        charge = party.history.charge.get(limit.unit, 0.0)
        rate = use * share / charge if charge > 0 else math.inf
        bounds.append((rate, BoundBy.SHARE if share < capacity else _BOUND_BY_UNIT[limit.unit]))
    return bounds
