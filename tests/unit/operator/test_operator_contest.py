"""Somebody else writes the replicas: reverted once, then growing pauses."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from llmqueue_operator.contest import QUIET_SECONDS, Contest
from llmqueue_operator.planning import ConditionType, Reason

KUBECTL = ("kubectl",)


def tick(contest: Contest, now: float, *, foreign: bool) -> tuple[Contest, bool]:
    """What the applier does in one tick; returns whether it overruled."""
    if not foreign:
        return contest.settled((), now), False
    if contest.may_write(now):
        return contest.reverted(KUBECTL, now), True
    return contest.lost(KUBECTL, now), False


def test_by_hand_once() -> None:
    """S22: reverted at once, no condition; forgotten after a quiet while."""
    contest, overruled = tick(Contest(), 1000, foreign=True)
    assert overruled
    assert contest.condition() is None
    assert contest.settled((), 1000 + QUIET_SECONDS - 1) == contest
    assert contest.settled((), 1000 + QUIET_SECONDS) == Contest()


def test_a_writer_that_stays() -> None:
    """S21: the second time it is not overruled, but told, and given a minute."""
    contest, _ = tick(Contest(), 1000, foreign=True)
    contest, overruled = tick(contest, 1001, foreign=True)
    assert not overruled
    condition = contest.condition()
    assert condition is not None
    assert (condition.type, condition.status) == (ConditionType.REPLICA_CONFLICT, True)
    assert condition.reason == Reason.FOREIGN_WRITER
    assert condition.message.startswith("kubectl also writes")
    assert not contest.may_write(1060)
    assert contest.may_write(1061)


def fight(seconds: int) -> list[tuple[int, Contest, bool]]:
    """Somebody who writes anew each second."""
    contest, log = Contest(), list[tuple[int, Contest, bool]]()
    for now in range(seconds):
        contest, overruled = tick(contest, now, foreign=True)
        log.append((now, contest, overruled))
    return log


def test_a_fight_gets_slower_and_stays_so() -> None:
    """S21: no loop. An HPA that never gives way is overruled at growing pauses up to ten minutes,
    for hours, and the condition stays."""
    log = fight(5 * 3600)
    overruled = [now for now, _, done in log if done]
    pauses = [after - before for before, after in itertools.pairwise(overruled)]
    assert pauses == sorted(pauses)
    assert pauses[:4] == [61, 120, 240, 480]
    assert set(pauses[4:]) == {600}
    assert all(contest.condition() is not None for now, contest, _ in log if now > 0)


def test_a_writer_that_gave_way_is_forgiven() -> None:
    log = fight(500)
    now, contest, _ = log[-1]
    contest, _ = tick(contest, 500, foreign=False)
    assert contest.condition() is not None, "not at once: it may come back"
    contest, _ = tick(contest, now + QUIET_SECONDS + 1, foreign=False)
    assert contest == Contest()


def test_an_owner_with_the_same_number_is_still_there() -> None:
    """Field ownership says that it will write again, though the number agrees for now."""
    _, contest, _ = fight(100)[-1]
    kept = contest.settled(KUBECTL, 100_000)
    assert kept == contest
    assert kept.condition() is not None


@given(st.lists(st.tuples(st.integers(1, 700), st.booleans()), max_size=60))
def test_never_two_overrulings_within_a_minute(ticks: list[tuple[int, bool]]) -> None:
    """Whenever the foreign writer writes."""
    contest, now, times = Contest(), 0, list[int]()
    for step, foreign in ticks:
        now += step
        contest, overruled = tick(contest, now, foreign=foreign)
        if overruled:
            times.append(now)
    for before, after in itertools.pairwise(times):
        assert after - before >= 60
