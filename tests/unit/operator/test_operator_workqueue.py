"""Keys that want attention, on a clock that jumps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmqueue_operator.workqueue import WorkQueue
from support.virtualtime import now, run_virtually, settle_down


async def within(seconds: float, queue: WorkQueue) -> list[str]:
    """What is handed out by then."""
    try:
        async with asyncio.timeout(seconds):
            return await queue.take()
    except TimeoutError:
        return []


def test_each_key_once_and_together() -> None:
    async def scenario() -> None:
        queue = WorkQueue(now)
        for key in ("a", "b", "a"):
            queue.add(key)
        assert sorted(await queue.take()) == ["a", "b"]
        queue.done("a")
        assert await within(1000, queue) == []

    run_virtually(scenario())


@pytest.mark.parametrize(
    ("delays", "due"),
    [
        pytest.param([5], 5, id="after its delay"),
        pytest.param([5, 2], 2, id="an earlier time counts"),
        pytest.param([2, 5], 2, id="a later one does not"),
        pytest.param([0], 0, id="at once"),
        pytest.param([7, 3, 7, 3, 5], 3, id="the earliest of many"),
    ],
)
def test_due(delays: list[float], due: float) -> None:
    async def scenario() -> float:
        queue = WorkQueue(now)
        for delay in delays:
            queue.add("a", delay=delay)
        assert await queue.take() == ["a"]
        at = now()
        queue.done("a")
        assert await within(100, queue) == [], "it came twice"
        return at

    assert run_virtually(scenario()) == pytest.approx(due)


def test_a_key_in_work_is_not_handed_out_again() -> None:
    async def scenario() -> None:
        queue = WorkQueue(now)
        queue.add("a")
        assert await queue.take() == ["a"]
        queue.add("a")
        queue.add("b", delay=3)
        assert await queue.take() == ["b"]
        assert await within(100, queue) == []
        queue.done("a")
        assert await queue.take() == ["a"], "what was added meanwhile follows"

    run_virtually(scenario())


def test_a_time_of_before_does_not_hand_out_a_key_in_work() -> None:
    """A later time that an earlier one replaced is still in the heap; added again for that very
    moment while in work, the key must wait until it is done."""

    async def scenario() -> None:
        queue = WorkQueue(now)
        queue.add("a", delay=10)
        queue.add("a", delay=4)
        assert await queue.take() == ["a"]
        queue.add("a", delay=10 - now())
        assert await within(100, queue) == [], "handed out while in work"
        queue.done("a")
        assert await queue.take() == ["a"]

    run_virtually(scenario())


def test_added_while_somebody_waits() -> None:
    async def scenario() -> None:
        queue = WorkQueue(now)
        waiting = asyncio.create_task(queue.take())
        await settle_down()
        queue.add("slow", delay=50)
        await settle_down()
        queue.add("soon", delay=1)
        assert await waiting == ["soon"]
        assert now() == pytest.approx(1)
        assert await queue.take() == ["slow"]
        assert now() == pytest.approx(50)

    run_virtually(scenario())


def test_waiting_is_not_looking_all_the_time() -> None:
    """A thousand keys far away, one of them dropped: a few looks at the clock, not a busy loop."""

    async def scenario() -> None:
        looks = 0

        def clock() -> float:
            nonlocal looks
            looks += 1
            return now()

        queue = WorkQueue(clock)
        for n in range(1000):
            queue.add(f"k{n}", delay=1000 + n)
        queue.add("gone", delay=10)
        queue.drop("gone")
        looks = 0
        assert await queue.take() == ["k0"]
        assert looks < 10

    run_virtually(scenario())


def test_nothing_waits_for_ever() -> None:
    async def scenario() -> None:
        assert await within(10_000, WorkQueue(now)) == []

    run_virtually(scenario())


def test_failures_come_again_after_growing_pauses() -> None:
    async def scenario() -> list[float]:
        queue, pauses = WorkQueue(now), list[float]()
        queue.add("a")
        for _ in range(12):
            assert await queue.take() == ["a"]
            began = now()
            pause = queue.failed("a")
            queue.done("a", succeeded=False)
            assert await within(1000, queue) == ["a"]
            assert now() - began == pytest.approx(pause)
            pauses.append(pause)
            queue.done("a", succeeded=False)
            queue.add("a")
        return pauses

    pauses = run_virtually(scenario())
    for number, pause in enumerate(pauses, start=1):
        usual = min(60.0, 0.5 * 2**number)
        assert 0.75 * usual <= pause <= 1.25 * usual, number


def test_success_forgets_the_failures() -> None:
    async def scenario() -> None:
        queue = WorkQueue(now)
        for _ in range(6):
            queue.add("a")
            await queue.take()
            queue.failed("a")
            queue.done("a", succeeded=False)
        assert queue.failed("a") > 30
        queue.done("a")
        assert queue.failed("a") < 2

    run_virtually(scenario())


def test_jitter_spreads() -> None:
    queue = WorkQueue(lambda: 0.0)
    assert len({queue.failed(f"k{n}") for n in range(20)}) > 10


@pytest.mark.parametrize("end", [lambda q: q.drop("a"), lambda q: q.clear()], ids=["drop", "clear"])
def test_dropped(end: Callable[[WorkQueue], Any]) -> None:
    async def scenario() -> None:
        queue = WorkQueue(now)
        queue.add("a", delay=1)
        end(queue)
        assert await within(100, queue) == []
        queue.add("a")
        assert await queue.take() == ["a"]

    run_virtually(scenario())


def test_a_clear_forgets_what_was_in_work() -> None:
    """A term ended in the middle of a look, which was cut off: the next term takes it up."""

    async def scenario() -> None:
        queue = WorkQueue(now)
        queue.add("a")
        await queue.take()
        queue.clear()
        assert await within(100, queue) == []
        queue.add("a")
        assert await queue.take() == ["a"]

    run_virtually(scenario())


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from("abc"), st.integers(0, 6)),
        st.tuples(st.just("done"), st.sampled_from("abc"), st.booleans()),
        st.tuples(st.just("wait"), st.integers(0, 6)),
        st.tuples(st.just("failed"), st.sampled_from("abc")),
        st.tuples(st.just("drop"), st.sampled_from("abc")),
        st.tuples(st.just("clear")),
    ),
    max_size=40,
)


@given(STEPS)
def test_never_twice_at_once_and_nothing_is_lost(steps: list[tuple[Any, ...]]) -> None:
    """Any order of adding, working, failing: a key in work is not handed out, no key comes before
    its time, and what was added comes once its worker is done."""

    async def scenario() -> None:
        queue, working = WorkQueue(now), set[str]()
        due: dict[str, float] = {}

        def add(key: str, at: float) -> None:
            due[key] = min(due.get(key, at), at)

        async def collect(seconds: float) -> None:
            until = now() + seconds
            while found := await within(max(until - now(), 1e-5), queue):
                assert len(found) == len(set(found))
                assert not working & set(found), "handed out while in work"
                for key in found:
                    assert due.pop(key) <= now()
                working.update(found)

        for what, *args in steps:
            match what, args:
                case "add", [key, delay]:
                    queue.add(key, delay=delay)
                    add(key, now() + delay)
                case "done", [key, succeeded] if key in working:
                    queue.done(key, succeeded=succeeded)
                    working.discard(key)
                case "failed", [key] if key in working:
                    due[key] = now() + queue.failed(key)
                case "drop", [key]:
                    queue.drop(key)
                    due.pop(key, None)
                case "clear", []:
                    queue.clear()
                    working.clear()
                    due.clear()
                case "wait", [seconds]:
                    await collect(seconds)
                case _:
                    pass
        for key in list(working):
            queue.done(key)
            working.discard(key)
        await collect(200)
        assert due == {}, "these never came"

    run_virtually(scenario())


def test_what_has_failed_waits_whatever_happens_meanwhile() -> None:
    """An API server in trouble sends events all the time: they must not undo the pause."""

    async def scenario() -> None:
        queue = WorkQueue(now)
        queue.add("a")
        await queue.take()
        pause = queue.failed("a")
        queue.done("a", succeeded=False)
        for delay in (0, 0.1, 50):
            queue.add("a", delay=delay)
        queue.add("b")
        assert await queue.take() == ["b"], "others do not wait"
        assert await queue.take() == ["a"]
        assert now() == pytest.approx(pause)
        queue.add("a", delay=3)
        queue.done("a")
        queue.add("a")
        assert await within(1, queue) == ["a"], "after a success an earlier time counts again"

    run_virtually(scenario())
