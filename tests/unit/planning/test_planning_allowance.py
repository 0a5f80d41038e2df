"""Limits of a day bound what may still be granted, not how fast."""

from __future__ import annotations

from typing import Any

import pytest

from llmqueue.config import Limit
from llmqueue.states import LimitUnit
from llmqueue.store.snapshots import LimitView
from llmqueue_operator.planning import BoundBy, Reason, plan
from llmqueue_operator.planning.allowance import Allowance
from unit.planning.builders import (
    crew,
    group,
    plan_one,
    queue_input,
    remembering,
    rpm,
    seen,
    settle,
    spec,
    store,
)

DAY = 86_400
HOUR = 3600.0
PACIFIC = "America/Los_Angeles"


def per_day(limit: int, unit: LimitUnit = LimitUnit.REQUESTS, zone: str | None = PACIFIC) -> Limit:
    return Limit(unit, limit, DAY, zone)


def view(limit: Limit, used: int = 0, frees: float = 10 * HOUR, **fields: Any) -> LimitView:
    defaults = {"declared": limit.limit, "effective": limit.limit}
    return LimitView(name=limit.name, used=used, frees_seconds=frees, **(defaults | fields))


BUSY = rpm(500)
WORK = {
    # waiting, used of 1,000 requests or 100,000 tokens a day → (workers, what binds)
    "plenty is left": (20, {"requests": 0}, (20, BoundBy.BACKLOG)),
    "less than the backlog": (20, {"requests": 995}, (5, BoundBy.REQUESTS_PER_DAY)),
    "as much as the backlog": (20, {"requests": 980}, (20, BoundBy.BACKLOG)),
    "nothing": (20, {"requests": 1000}, (0, BoundBy.REQUESTS_PER_DAY)),
    "more was used than is allowed": (20, {"requests": 1100}, (0, BoundBy.REQUESTS_PER_DAY)),
    "tokens for a few": (20, {"tokens": 99_000}, (10, BoundBy.TOKENS_PER_DAY)),
    "the scarcer of two": (20, {"tokens": 99_000, "requests": 996}, (4, BoundBy.REQUESTS_PER_DAY)),
    "a minute's limit is scarcer": (900, {"requests": 0}, (74, BoundBy.REQUESTS_PER_MINUTE)),
    "no job": (0, {"requests": 1000}, (0, BoundBy.IDLE)),
}


@pytest.mark.parametrize(("ready", "used", "expected"), WORK.values(), ids=WORK.keys())
def test_a_backlog_that_a_day_holds_back_is_no_reason_for_workers(
    ready: int, used: dict[str, int], expected: tuple[int, BoundBy]
) -> None:
    requests, tokens = per_day(1000), per_day(100_000, LimitUnit.TOKENS)
    views = [view(each, used.get(each.unit, 0)) for each in (requests, tokens)]
    # Two hundred grants have shown that a job takes 100 tokens, and 8 s.
    queue = seen(
        ready=ready, grants=200, busy_ms=1_600_000, charged={"requests": 200, "tokens": 20_000}
    )
    snapshot = group(
        queue_input(),
        store([queue], limits=tuple(views)),
        limits=[BUSY, requests, tokens],
    )
    made, _ = plan_one(snapshot, remembering(0, slot_seconds=8.0))
    assert (made.wish, made.bound_by) == expected


@pytest.mark.parametrize("zone", [PACIFIC, None])
def test_running_calls_keep_their_workers(zone: str | None) -> None:
    """They are charged already."""
    limit = per_day(1000, zone=zone)
    pods, workers = crew(busy=3)
    snapshot = group(
        queue_input(pods=pods),
        store([seen(ready=50, sent=3)], workers, limits=(view(limit, 1000),)),
        limits=[limit],
    )
    made, _ = plan_one(snapshot)
    assert (made.wish, made.bound_by) == (3, BoundBy.REQUESTS_PER_DAY)


def test_alone_it_bounds_no_rate() -> None:
    """Backlog and maxInFlight do."""
    limit = per_day(1000)
    state = store([seen(ready=50)], limits=(view(limit),))
    made, _ = plan_one(group(queue_input(), state, limits=[limit]), remembering(0))
    assert (made.wish, made.bound_by) == (50, BoundBy.BACKLOG)
    snapshot = group(queue_input(), state, limits=[limit], max_in_flight=10)
    made, _ = plan_one(snapshot, remembering(0))
    assert (made.wish, made.bound_by) == (10, BoundBy.IN_FLIGHT)


def test_the_reason_is_the_day_and_not_that_nothing_is_to_do() -> None:
    """S28: it says why, and when that changes: in time for pods to start."""
    limit = per_day(1000)
    state = store([seen(ready=50)], limits=(view(limit, 1000),))
    made, _ = plan_one(group(queue_input(), state, limits=[BUSY, limit]), remembering(0))
    assert (made.target, made.reason) == (0, Reason.DAY_USED_UP)
    assert made.next_change_seconds == 10 * HOUR - 10
    assert made.effective_rpm == 0


def test_workers_come_as_the_new_day_begins() -> None:
    limit = per_day(1000)
    for frees, expected in ((11.0, 0), (9.0, 50)):
        state = store([seen(ready=50)], limits=(view(limit, 1000, frees),))
        made, _ = plan_one(group(queue_input(), state, limits=[limit]), remembering(0))
        assert made.wish == expected


def test_workers_go_when_the_day_is_used_up() -> None:
    limit = per_day(1000)
    pods, workers = crew(idle=5)
    queue = queue_input(spec(stabilization_seconds=10.0, idle_seconds=20.0), pods)
    state = store([seen(ready=50)], workers, limits=(view(limit, 1000),))
    made, _ = settle(group(queue, state, limits=[limit]), remembering(5), start=1000.0, seconds=60)
    assert made.target == 0


ETAS = {
    # (waiting, used, zone, frees) → seconds; 60 a minute can be used, calls take 8 s
    "fits today": ((30, 0, PACIFIC, 10 * HOUR), 30 * 61 / 60),
    "nothing left today": ((30, 1000, PACIFIC, 10 * HOUR), 10 * HOUR + 30 * 61 / 60),
    "today and two days more": ((1700, 500, PACIFIC, HOUR), HOUR + DAY + 200 * 61 / 60),
    "all of it in one burst": ((30, 1000, None, 10 * HOUR), 10 * HOUR),
    "used evenly": ((600, 1000, None, 60.0), 600 / 1000 * DAY),
}


@pytest.mark.parametrize(("given", "expected"), ETAS.values(), ids=ETAS.keys())
def test_eta_counts_the_days(given: tuple[int, int, str | None, float], expected: float) -> None:
    ready, used, zone, frees = given
    limit = per_day(1000, zone=zone)
    state = store([seen(ready=ready)], limits=(view(limit, used, frees),))
    made, _ = plan_one(group(queue_input(), state, limits=[rpm(60), limit]), remembering(0))
    assert made.eta_seconds == pytest.approx(expected, rel=0.01)


def test_what_remains_is_shared() -> None:
    """S46: by weight where both want more, and what one leaves is the other's."""
    limit = per_day(1000)
    inputs = [queue_input(queue=name, weight=weight) for name, weight in (("a", 2), ("b", 1))]
    for ready, expected in ((100, [20, 10]), (5, [25, 5])):
        queues = [seen("a", ready=100), seen("b", ready=ready)]
        state = store(queues, limits=(view(limit, 970),))
        made = plan(group(inputs, state, limits=[limit]), remembering(0), 1000.0)
        assert [each.wish for each in made.queues] == expected


def test_a_learned_limit_is_what_is_planned_with() -> None:
    """S42: half of the limit needs fewer workers, and the message says who said so."""
    limit = rpm(60)
    state = store([seen(ready=500)], limits=(view(limit, effective=30),))
    made, _ = plan_one(group(queue_input(), state, limits=[limit]), remembering(0))
    assert made.wish == 6
    assert made.bound_by is BoundBy.REQUESTS_PER_MINUTE
    assert made.effective_rpm == pytest.approx(30 * 60 / 61)
    assert "the provider allows 30 requests/60 instead of 60" in made.message


def test_an_allowance_counts_whole_days() -> None:
    allowance = Allowance(10, BoundBy.REQUESTS_PER_DAY, 100.0, 50, DAY, calendar=True)
    found = [allowance.seconds_until(grants) for grants in (10, 11, 60, 61, 111)]
    assert found == [0.0, 100.0, 100.0, 100.0 + DAY, 100.0 + 2 * DAY]
    assert [allowance.last_of(grants) for grants in (10, 11, 60, 61)] == [0.0, 1, 50, 1]
