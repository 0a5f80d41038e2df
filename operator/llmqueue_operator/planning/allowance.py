"""Limits in the long: not how fast jobs may go, but how many of them may still go.

A backlog that a day's limit holds back is no reason for workers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from llmqueue.config import Limit
from llmqueue.states import LimitUnit
from llmqueue.store.snapshots import BudgetSnapshot
from llmqueue_operator.planning.shares import Claimant, shares
from llmqueue_operator.planning.types import BoundBy

_BOUND_BY_UNIT = {
    LimitUnit.REQUESTS: BoundBy.REQUESTS_PER_DAY,
    LimitUnit.TOKENS: BoundBy.TOKENS_PER_DAY,
    LimitUnit.INPUT_TOKENS: BoundBy.TOKENS_PER_DAY,
    LimitUnit.OUTPUT_TOKENS: BoundBy.TOKENS_PER_DAY,
}


@dataclass(frozen=True, slots=True)
class Allowance:
    """`grants` that a queue may still make before something is free again, which is in
    `frees_seconds`; then there are at most `per_window` of them in `window_seconds`.

    `calendar`: all of them at once, else bit by bit, as they were used.
    """

    grants: float
    bound_by: BoundBy
    frees_seconds: float
    per_window: float
    window_seconds: float
    calendar: bool

    def seconds_until(self, grants: float) -> float:
        """When that many grants will have been allowed."""
        beyond = grants - self.grants
        if beyond <= 0:
            return 0.0
        if self.per_window <= 0:
            return math.inf
        if self.calendar:
            windows = math.ceil(beyond / self.per_window) - 1
            return self.frees_seconds + windows * self.window_seconds
        return max(self.frees_seconds, beyond / self.per_window * self.window_seconds)

    def last_of(self, grants: float) -> float:
        """How many of so many grants are allowed at that moment only."""
        beyond = grants - self.grants
        if not self.calendar or beyond <= 0 or self.per_window <= 0:
            return 0.0
        return beyond - (math.ceil(beyond / self.per_window) - 1) * self.per_window


UNBOUNDED = Allowance(math.inf, BoundBy.BACKLOG, 0.0, math.inf, 0.0, calendar=False)


@dataclass(frozen=True, slots=True)
class Applicant:
    """A queue's wish: grants, and what one of them is expected to charge."""

    grants: float
    charge: Mapping[str, float]
    weight: int
    lead_seconds: float = 0.0
    """What is free again this soon counts as free: a new worker takes as long."""


def allowances(
    limits: Sequence[Limit], store: BudgetSnapshot, applicants: Sequence[Applicant]
) -> list[Allowance]:
    """The scarcest long limit of each applicant, in their order."""
    found = [UNBOUNDED] * len(applicants)
    for limit in limits:
        if limit.paced:
            continue
        for i, each in enumerate(_divide(limit, store, applicants)):
            if each.grants < found[i].grants:
                found[i] = each
    return found


def _divide(
    limit: Limit, store: BudgetSnapshot, applicants: Sequence[Applicant]
) -> list[Allowance]:
    seen = next((each for each in store.limits if each.name == limit.name), None)
    used = seen.used if seen else 0
    frees = seen.frees_seconds if seen else float(limit.seconds)
    lead = max((each.lead_seconds for each in applicants), default=0.0)
    if limit.time_zone is not None and frees <= lead:
        used = 0  # workers that are asked for now come in the new day
    left = float(max(0, limit.limit - used))
    charges = [each.charge.get(limit.unit, 0.0) for each in applicants]
    wants = [
        Claimant(each.grants * charge, each.weight)
        for each, charge in zip(applicants, charges, strict=True)
    ]
    return [
        Allowance(
            grants=math.floor(share / charge + 1e-9),
            bound_by=BoundBy.SHARE if share < want.wants <= left else _BOUND_BY_UNIT[limit.unit],
            frees_seconds=frees,
            per_window=limit.limit / charge,
            window_seconds=float(limit.seconds),
            calendar=limit.time_zone is not None,
        )
        if charge > 0
        else UNBOUNDED
        for share, charge, want in zip(shares(left, wants), charges, wants, strict=True)
    ]
