"""The pump on a virtual clock: what it asks for, when it asks again, what it survives."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import pytest
import structlog.testing

from llmqueue.errors import StoreMisconfigured, StoreUnavailable, UnknownQueue
from llmqueue.states import JobState, WaitReason
from llmqueue.store.port import ClaimReply
from llmqueue_worker.pump import LIMITED_SECONDS, POLL_SECONDS, Until, rest_after
from support.scriptedrunner import start, working
from support.virtualtime import run_virtually, settle_down


@pytest.mark.parametrize(
    ("reason", "wait", "until", "least"),
    [
        pytest.param(None, 0, Until.SLOT, 0, id="all slots filled"),
        pytest.param(WaitReason.AGAIN, 0, Until.TIME, 0, id="housekeeping goes on"),
        pytest.param(WaitReason.EMPTY, 5, Until.WORK, 5, id="empty"),
        pytest.param(WaitReason.IN_FLIGHT, 1, Until.WORK, 1, id="in flight"),
        pytest.param(WaitReason.SUSPENDED, 5, Until.WORK, 5, id="suspended"),
        pytest.param(WaitReason.BREAKER, 300, Until.WORK, POLL_SECONDS, id="breaker"),
        pytest.param(WaitReason.REQUESTS, 7, Until.TIME, 7, id="limit"),
        pytest.param(WaitReason.TOKENS, 300, Until.TIME, LIMITED_SECONDS, id="limit, long"),
        pytest.param(WaitReason.BLOCKED, 86_400, Until.TIME, LIMITED_SECONDS, id="blocked"),
        pytest.param(WaitReason.PAUSED, 300, Until.TIME, POLL_SECONDS, id="credential paused"),
        pytest.param(WaitReason.DRAINING, 1, Until.TIME, 1, id="draining"),
        pytest.param(WaitReason.UNCONFIGURED, 5, Until.TIME, 5, id="unconfigured"),
        pytest.param(WaitReason.SHARE, 9, Until.TIME, POLL_SECONDS, id="another queue's turn"),
    ],
)
def test_when_the_next_claim_is_due(
    reason: WaitReason | None, wait: float, until: Until, least: float
) -> None:
    rests = [rest_after(ClaimReply((), wait, reason)) for _ in range(50)]
    assert {rest.until for rest in rests} == {until}
    assert all(least <= rest.seconds <= least + 0.02 for rest in rests)


def test_asks_for_its_free_slots_only() -> None:
    """Q13: never more is claimed than can run, and a free slot is filled at once."""

    async def scenario() -> None:
        async with working(slots=3) as bench:
            bench.store.add(10)
            bench.runner.seconds = 2.0
            start(bench)
            await asyncio.sleep(7.5)
            asked = [request.slots for request in bench.store.named("claim")]
            assert asked[:4] == [3, 3, 3, 3]
            assert bench.runner.most_running == 3
            assert len(bench.store.settled) == 9
            starts = bench.store.times("claim")[:4]
            assert starts == pytest.approx([0, 2, 4, 6], abs=0.01)

    run_virtually(scenario())


def test_one_claim_while_limited() -> None:
    """A slot that becomes free does not hurry a claim that was told to wait."""

    async def scenario() -> None:
        async with working(slots=4) as bench:
            bench.store.add(3)
            bench.runner.seconds = 2.0
            start(bench)
            await settle_down()
            bench.store.reply = ClaimReply((), 20.0, WaitReason.REQUESTS)
            bench.store.add(1)
            await asyncio.sleep(0.5)
            before = len(bench.store.named("claim"))
            await asyncio.sleep(15)
            assert len(bench.store.settled) == 3
            assert len(bench.store.named("claim")) == before

    run_virtually(scenario())


def test_an_empty_queue_wakes_it() -> None:
    async def scenario() -> None:
        async with working() as bench:
            start(bench)
            await asyncio.sleep(12.3)
            claims = len(bench.store.named("claim"))
            assert claims == 3
            bench.store.add()
            await settle_down()
            assert len(bench.runner.started) == 1

    run_virtually(scenario())


def test_survives_the_store() -> None:
    """Q37, Q48: claims go on less than 5 s after an outage; each failure is told once."""

    async def scenario() -> None:
        async with working() as bench:
            bench.store.add(2)
            bench.store.faults["claim"].extend([StoreUnavailable("gone")] * 20)
            with structlog.testing.capture_logs() as logs:
                start(bench)
                await asyncio.sleep(60)
            at = bench.store.times("claim")
            gaps = [later - earlier for earlier, later in itertools.pairwise(at[:21])]
            assert max(gaps) <= 2.0
            assert gaps[0] <= 0.1
            assert len(bench.store.settled) == 2
            names = [line["event"] for line in logs]
            assert names.count("store-unavailable") == 1
            assert names.count("claiming-again") == 1

    run_virtually(scenario())


@pytest.mark.parametrize(
    ("fault", "event"),
    [
        pytest.param(StoreMisconfigured("eviction"), "store-misconfigured", id="misconfigured"),
        pytest.param(UnknownQueue("no queue"), "unconfigured", id="unknown queue"),
    ],
)
def test_polls_slowly_what_a_person_must_mend(fault: Exception, event: str) -> None:
    async def scenario() -> None:
        async with working() as bench:
            bench.store.add(1)
            bench.store.faults["claim"].extend([fault] * 3)
            with structlog.testing.capture_logs() as logs:
                start(bench)
                await asyncio.sleep(17)
            assert len([t for t in bench.store.times("claim") if t < 14.9]) == 3
            assert [line["event"] for line in logs].count(event) == 1
            assert len(bench.store.settled) == 1

    run_virtually(scenario())


def test_a_bug_does_not_end_it() -> None:
    async def scenario() -> None:
        async with working() as bench:
            bench.store.add(1)
            bench.store.faults["claim"].append(ZeroDivisionError())
            bench.store.faults["wait_for_work"].extend([StoreUnavailable("x"), ValueError()])
            start(bench)
            await asyncio.sleep(30)
            assert len(bench.store.settled) == 1
            bench.store.add(1)
            await asyncio.sleep(10)
            assert len(bench.store.settled) == 2

    run_virtually(scenario())


def test_a_lost_reply_is_no_double_start() -> None:
    """Q48: grants whose reply was lost stay the store's: they come again, and run once."""

    async def scenario() -> None:
        async with working(slots=2) as bench:
            bench.store.add(2)
            bench.store.after["claim"].append(StoreUnavailable("cut"))
            start(bench)
            await settle_down()
            assert bench.runner.started == []
            bench.store.add(1)
            await asyncio.sleep(3)
            assert bench.runner.started == ["job-3"]

    run_virtually(scenario())


def test_says_whether_a_suspect_runs_here() -> None:
    """Neighbours of a poison job are not condemned: at most one suspect in a process."""

    async def scenario() -> None:
        async with working(slots=3) as bench:
            bench.store.add(1, crashes=1)
            bench.runner.seconds = 30.0
            start(bench)
            await asyncio.sleep(1)
            bench.store.add(1)
            await asyncio.sleep(1)
            assert [request.clean for request in bench.store.named("claim")[:2]] == [True, False]
            await asyncio.sleep(60)
            assert bench.store.named("claim")[-1].clean

    run_virtually(scenario())


def test_the_next_suspect_follows_at_once() -> None:
    """Jobs of a dead worker wait for each other, not for the next look at the queue as well."""

    async def scenario() -> None:
        async with working(slots=3) as bench:
            bench.store.add(1, crashes=1)
            bench.runner.seconds = 1.5
            start(bench)
            await asyncio.sleep(2)
            assert bench.store.times("claim")[1] == pytest.approx(1.5, abs=0.01)
            assert bench.store.named("claim")[1].clean

    run_virtually(scenario())


def test_a_key_that_cannot_be_read_stops_claims_only(tmp_path: Path) -> None:
    path = tmp_path / "key"

    async def scenario() -> None:
        async with working(api_key_file=path) as bench:
            bench.store.add(1)
            with structlog.testing.capture_logs() as logs:
                start(bench)
                await asyncio.sleep(30)
            assert bench.store.named("claim") == []
            assert [line["event"] for line in logs].count("credential-unusable") == 1
            path.write_text("sk-one\n")
            await asyncio.sleep(10)
            assert bench.store.states == {"job-1": JobState.SUCCEEDED}

    run_virtually(scenario())


def test_a_replaced_key_counts_from_the_next_claim_on(tmp_path: Path) -> None:
    """Calls under way keep the key, and the name, that they were claimed with."""
    path = tmp_path / "key"
    path.write_text("sk-one")

    async def scenario() -> None:
        async with working(api_key_file=path, slots=2) as bench:
            bench.store.add(1)
            bench.runner.connect_seconds = 8.0
            start(bench)
            await asyncio.sleep(1)
            path.write_text("sk-other")
            bench.store.add(1)
            await asyncio.sleep(30)
            claimed = [request.credential for request in bench.store.named("claim")]
            asked = {
                job: cred for pairs, cred in bench.store.named("mark_sent") for job, _ in pairs
            }
            settled = {item.id: item.credential for item in bench.store.settled}
            assert asked["job-1"] == settled["job-1"] == claimed[0]
            assert asked["job-2"] == settled["job-2"] == claimed[-1] != claimed[0]

    run_virtually(scenario())


def test_takes_nothing_while_a_drain_mark_holds() -> None:
    """A marked worker neither ends nor claims; when the mark lapses it goes on."""

    async def scenario() -> None:
        async with working() as bench:
            start(bench)
            await asyncio.sleep(0.5)
            bench.store.draining = True
            await asyncio.sleep(10)
            bench.store.add(1)
            claims = len(bench.store.named("claim"))
            await asyncio.sleep(60)
            assert len(bench.store.named("claim")) == claims
            assert len(bench.store.named("beat")) > 20
            bench.store.draining = False
            await asyncio.sleep(5)
            assert bench.store.states == {"job-1": JobState.SUCCEEDED}

    run_virtually(scenario())


def test_is_seen_before_it_claims() -> None:
    """A planner must not take the first jobs of a new process for abandoned."""

    async def scenario() -> None:
        async with working() as bench:
            bench.store.add(1)
            bench.store.faults["beat"].extend([StoreUnavailable("gone")] * 3)
            start(bench)
            await asyncio.sleep(20)
            assert bench.store.times("claim")[0] == bench.store.times("beat")[3]
            assert bench.store.times("beat")[3] > 0

    run_virtually(scenario())
