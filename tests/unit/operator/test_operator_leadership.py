"""Who acts. Two replicas, a server for one Lease, a clock that jumps."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmqueue.errors import UsageError
from llmqueue_operator.errors import NotLeading
from llmqueue_operator.leadership import DURATION_SECONDS, FRESH_SECONDS, RETRY_SECONDS, Leadership
from support.leaseserver import LeaseClient, LeaseServer
from support.virtualtime import now, run_virtually, settle_down

ROUND_SECONDS = RETRY_SECONDS * 1.1


class Replica:
    """One operator. `ahead` is how much its monotonic clock differs from the others'; it counts at
    the same rate."""

    def __init__(
        self, server: LeaseServer, name: str, *, installation: str = "one", ahead: float = 0.0
    ) -> None:
        self.client = LeaseClient(server)
        self.leadership = Leadership(
            self.client,  # type: ignore[arg-type]
            namespace="llmqueue",
            identity=name,
            installation=installation,
            clock=lambda: now() + ahead,
        )
        self.task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.task = asyncio.create_task(self.leadership.run())

    async def stop(self) -> None:
        """As the controller does."""
        await self.crash()
        await self.leadership.release()

    async def crash(self) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)
        self.task = None

    @property
    def leads(self) -> bool:
        return self.leadership.leading.is_set()

    @property
    def may_write(self) -> bool:
        try:
            self.leadership.check()
        except NotLeading:
            return False
        return True


async def pair(**kwargs: Any) -> tuple[LeaseServer, Replica, Replica]:
    """a leads, b waits."""
    server = LeaseServer()
    a, b = Replica(server, "a"), Replica(server, "b", **kwargs)
    a.start()
    await asyncio.sleep(1)
    b.start()
    await asyncio.sleep(1)
    assert (a.leads, b.leads) == (True, False)
    return server, a, b


async def until_leading(replica: Replica) -> float:
    """How long that took."""
    began = now()
    await replica.leadership.leading.wait()
    return now() - began


def test_the_first_one_leads_at_once_and_goes_on() -> None:
    async def scenario() -> None:
        server = LeaseServer()
        a = Replica(server, "a")
        assert not a.may_write
        assert a.leadership.lost.is_set()
        a.start()
        assert await until_leading(a) < 0.1
        for _ in range(1000):
            await asyncio.sleep(1)
            assert a.may_write
        assert a.leadership.term == 1
        assert not a.leadership.lost.is_set()
        assert server.writes == pytest.approx(1000 / RETRY_SECONDS, rel=0.1)
        spec = server.lease["spec"]
        assert (spec["leaseDurationSeconds"], spec["leaseTransitions"]) == (15, 0)
        assert spec["acquireTime"] < spec["renewTime"]
        await a.crash()

    run_virtually(scenario())


def test_the_second_one_waits_and_writes_nothing() -> None:
    async def scenario() -> None:
        server, a, b = await pair()
        before = server.writes
        await a.crash()
        await asyncio.sleep(DURATION_SECONDS - 2 * ROUND_SECONDS)
        assert server.writes == before
        assert not b.leads
        await b.crash()

    run_virtually(scenario())


def test_a_leader_that_died_is_followed() -> None:
    async def scenario() -> None:
        server, a, b = await pair()
        await a.crash()
        took = await until_leading(b)
        assert FRESH_SECONDS < took <= DURATION_SECONDS + 2 * ROUND_SECONDS
        assert b.may_write
        assert server.holder == "b"
        assert server.lease["spec"]["leaseTransitions"] == 1
        await b.crash()

    run_virtually(scenario())


def test_a_leader_that_ends_in_order_is_followed_at_once() -> None:
    """Rolling the operator: the Lease is given back, the next one need not wait it out."""

    async def scenario() -> None:
        server, a, b = await pair()
        await a.stop()
        assert not a.may_write
        assert server.holder == ""
        assert await until_leading(b) <= ROUND_SECONDS
        await b.crash()

    run_virtually(scenario())


def test_what_is_not_held_is_not_given_back() -> None:
    async def scenario() -> None:
        server, a, b = await pair()
        await b.stop()
        assert server.holder == "a"
        await asyncio.sleep(20)
        assert a.may_write
        await a.crash()

    run_virtually(scenario())


def test_giving_back_what_another_one_took_changes_nothing() -> None:
    async def scenario() -> None:
        server, a, b = await pair()
        await a.crash()
        await until_leading(b)
        await a.leadership.release()
        assert server.holder == "b"
        assert b.may_write
        await b.crash()

    run_virtually(scenario())


def test_a_server_that_does_not_answer_at_the_end() -> None:
    async def scenario() -> None:
        server, a, b = await pair()
        await b.crash()
        a.client.down = True
        await a.stop()
        assert not a.leads
        assert server.holder == "a"

    run_virtually(scenario())


@pytest.mark.parametrize("ahead", [-5000.0, 0.0, 5000.0])
def test_cut_off_from_the_server(ahead: float) -> None:
    """S50: it stops writing before another may begin, whatever the clocks of the two machines."""

    async def scenario() -> None:
        server, a, b = await pair(ahead=ahead)
        a.client.down = True
        cut_at = now()
        while not b.leads:
            await asyncio.sleep(0.1)
            if now() - cut_at >= FRESH_SECONDS:
                assert not a.may_write
            assert not (a.may_write and b.may_write)
        assert not a.leads
        assert a.leadership.lost.is_set()
        assert now() - cut_at > FRESH_SECONDS + 2
        a.client.down = False
        await asyncio.sleep(60)
        assert (a.leads, b.may_write) == (False, True)
        await a.crash()
        await b.crash()
        assert server.holder == "b"

    run_virtually(scenario())


def test_a_short_outage_changes_nothing() -> None:
    async def scenario() -> None:
        _, a, b = await pair()
        for each in (a, b):
            each.client.down = True
        await asyncio.sleep(FRESH_SECONDS - 2 * ROUND_SECONDS)
        assert a.may_write
        for each in (a, b):
            each.client.down = False
        await asyncio.sleep(60)
        assert (a.leadership.term, b.leads) == (1, False)
        await a.crash()
        await b.crash()

    run_virtually(scenario())


def test_a_long_outage_and_the_same_one_leads_again() -> None:
    """S50: its next term is a new one: everything is read afresh."""

    async def scenario() -> None:
        server = LeaseServer()
        a = Replica(server, "a")
        a.start()
        await until_leading(a)
        a.client.down = True
        await a.leadership.lost.wait()
        assert not a.leads
        a.client.down = False
        assert await until_leading(a) <= ROUND_SECONDS
        assert a.leadership.term == 2
        await a.crash()

    run_virtually(scenario())


def test_a_paused_replica_does_not_write_when_it_wakes() -> None:
    """SIGSTOP, a frozen node: it wakes, believes that it leads, and `check` knows better."""

    async def scenario() -> None:
        server, a, b = await pair()
        await a.crash()  # nothing of it runs any more; its object is what wakes
        await until_leading(b)
        assert a.leads, "nobody told it"
        assert not a.may_write
        a.start()
        await asyncio.sleep(0.1)
        assert not a.leads
        assert b.may_write
        assert server.holder == "b"
        await a.crash()
        await b.crash()

    run_virtually(scenario())


def test_an_answer_that_comes_late_counts_from_its_question() -> None:
    """Renewed 4 s before its answer came: those 4 s are gone."""

    async def scenario() -> None:
        server = LeaseServer()
        a = Replica(server, "a")
        a.client.back = 2.0
        a.start()
        await until_leading(a)
        assert now() == pytest.approx(4)
        await a.crash()
        await asyncio.sleep(FRESH_SECONDS - 4 - 0.1)
        assert a.may_write
        await asyncio.sleep(0.2)
        assert not a.may_write

    run_virtually(scenario())


def test_a_silent_server_does_not_hold_the_loop() -> None:
    """S50: a request without an answer ends after some seconds, and the Lease is given up."""

    async def scenario() -> None:
        _, a, b = await pair()
        await b.crash()
        a.client.way = 100_000.0
        began = now()
        await a.leadership.lost.wait()
        assert now() - began <= FRESH_SECONDS + 5 + ROUND_SECONDS
        await a.crash()

    run_virtually(scenario())


def test_both_begin_at_the_same_moment() -> None:
    async def scenario() -> None:
        server = LeaseServer()
        replicas = [Replica(server, name) for name in "abc"]
        for each in replicas:
            each.client.way = each.client.back = 0.05
            each.start()
        await asyncio.sleep(1)
        assert sum(each.may_write for each in replicas) == 1
        await asyncio.sleep(60)
        assert sum(each.may_write for each in replicas) == 1
        for each in replicas:
            await each.crash()

    run_virtually(scenario())


# ---------------------------------------------------------------- another installation


def test_another_installation_is_refused() -> None:
    """Two operators on one namespace would fight for every Deployment."""

    async def scenario() -> None:
        server, a, b = await pair(installation="two")
        with pytest.raises(
            UsageError, match=r"served by a of installation 'one'.*'two'"
        ) as refused:
            await b.task  # type: ignore[misc]
        assert "Remove one of them" in str(refused.value)
        assert a.may_write
        assert server.holder == "a"
        await a.crash()

    run_virtually(scenario())


def test_an_installation_that_is_gone_is_followed() -> None:
    """Its Lease stays behind; nobody renews it."""

    async def scenario() -> None:
        server = LeaseServer()
        old = Replica(server, "old", installation="old")
        old.start()
        await until_leading(old)
        await old.crash()
        b = Replica(server, "b", installation="two")
        b.start()
        assert await until_leading(b) <= DURATION_SECONDS + 2 * ROUND_SECONDS
        annotations = server.lease["metadata"]["annotations"]
        assert annotations == {"llmqueue.dev/installation": "two"}
        await b.crash()

    run_virtually(scenario())


# ---------------------------------------------------------------- any interleaving


class WallClock:
    """Stands for `datetime` in the module: somebody sets the time of day, also back."""

    def __init__(self) -> None:
        self.offset = 0.0

    def now(self, _zone: object) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=now() + self.offset)


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("wait"), st.floats(0, 20)),
        st.tuples(st.just("down"), st.integers(0, 1), st.booleans()),
        st.tuples(st.just("slow"), st.integers(0, 1), st.floats(0, 6), st.floats(0, 6)),
        st.tuples(st.just("step"), st.floats(-100, 100)),
        st.tuples(st.just("crash"), st.integers(0, 1)),
        st.tuples(st.just("stop"), st.integers(0, 1)),
        st.tuples(st.just("start"), st.integers(0, 1)),
    ),
    max_size=25,
)


@settings(max_examples=150)
@given(
    events=EVENTS,
    ahead=st.lists(st.floats(-1e5, 1e5), min_size=2, max_size=2),
    seed=st.integers(0, 2**16),
)
def test_never_two_at_a_time(events: list[Any], ahead: list[float], seed: int) -> None:
    """Cut off, slow, paused, ended, begun again, on machines with any clocks: at no moment may two
    of them write; and when all is well again, exactly one does."""

    wall = WallClock()

    async def scenario() -> None:
        server = LeaseServer()
        replicas = [Replica(server, n, ahead=a) for n, a in zip("ab", ahead, strict=True)]

        async def watch() -> None:
            while True:
                assert sum(each.may_write for each in replicas) <= 1, f"both at {now()}"
                await asyncio.sleep(0.25)

        watching = asyncio.create_task(watch())
        for what, *args in events:
            match what, args:
                case "wait", [seconds]:
                    await asyncio.sleep(seconds)
                case "down", [number, down]:
                    replicas[number].client.down = down
                case "slow", [number, way, back]:
                    replicas[number].client.way, replicas[number].client.back = way, back
                case "step", [seconds]:
                    wall.offset += seconds
                case "crash", [number]:
                    await replicas[number].crash()
                case "stop", [number]:
                    await replicas[number].stop()
                case "start", [number] if replicas[number].task is None:
                    replicas[number].start()
                case _:
                    pass
            await settle_down(3)
        for each in replicas:
            each.client.down, each.client.way, each.client.back = False, 0.0, 0.0
            if each.task is None:
                each.start()
        await asyncio.sleep(2 * DURATION_SECONDS + 15)
        assert sum(each.may_write for each in replicas) == 1
        assert server.holder == next(n for n, r in zip("ab", replicas, strict=True) if r.may_write)
        assert not watching.done(), watching.exception()
        watching.cancel()
        for each in replicas:
            await each.crash()

    state = random.getstate()
    random.seed(seed)
    try:
        with mock.patch("llmqueue_operator.leadership.datetime", wall):
            run_virtually(scenario())
    finally:
        random.setstate(state)
