"""What a crash leaves of a handler job: its journal, one open call, and a ledger that is the bill."""

from __future__ import annotations

from typing import Any

import pytest

from llmqueue.store.port import Grant
from support.handlerbench import acquire, end_run, finish, ledger, make_call
from support.storebench import StoreBench, after_lease, beat


async def start(bench: StoreBench, **fields: Any) -> Grant:
    await bench.enqueue(handler="h", **fields)
    return await bench.take()


# ---------------------------------------------------------------- crashes


async def test_a_crash_between_calls_uses_no_attempt(bench: StoreBench) -> None:
    grant = await start(bench)
    await make_call(bench, grant, 1)
    await after_lease(bench)
    again = await bench.take(worker="w:2")
    assert (again.id, again.attempt, again.crashes, again.journaled) == (grant.id, 1, 1, True)
    assert not again.possible_duplicate
    assert len(await ledger(bench)) == 1


async def test_a_crash_in_a_call_repeats_only_that_call(bench: StoreBench) -> None:
    """Q49: the repeat is cheap, told, and the other calls are not made again."""
    grant = await start(bench)
    await make_call(bench, grant, 1)
    await acquire(bench, grant, 2, worst_nano_usd=5)
    await bench.send(grant)
    await after_lease(bench)
    again = await bench.take(worker="w:2")
    assert (again.journaled, again.possible_duplicate) == (True, True)
    journal = await bench.store.journal(bench.queue, again.id)
    assert (set(journal.answers), journal.in_doubt) == ({"n1"}, {"n2"})
    lost = (await ledger(bench))[-1]
    assert (lost["kind"], lost["call"], lost["nano_usd"], lost["model"]) == ("lost", 2, 5, "m")


async def test_a_dear_unknown_call_waits_for_a_person(bench: StoreBench) -> None:
    grant = await start(bench)
    await make_call(bench, grant, 1)
    await acquire(bench, grant, 2, worst_nano_usd=900_000_000)
    await bench.send(grant)
    await after_lease(bench)
    assert await bench.state(grant.id) == "review"


@pytest.mark.parametrize("worst", [5, 900_000_000], ids=["repeated", "in review"])
async def test_a_call_that_was_taken_for_lost_is_booked_once(bench: StoreBench, worst: int) -> None:
    """Its worker was only away: the worst case is corrected, and the paid answer is kept."""
    grant = await start(bench)
    await make_call(bench, grant, 1)
    await acquire(bench, grant, 2, worst_nano_usd=worst)
    await bench.send(grant)
    await after_lease(bench)
    in_review = worst > 5
    assert await finish(bench, grant, 2) is in_review
    assert await finish(bench, grant, 2) is in_review
    assert [(row["call"], row["kind"]) for row in await ledger(bench)] == [
        (1, "call"), (2, "lost"), (2, "correction"),
    ]  # fmt: skip
    journal = await bench.store.journal(bench.queue, grant.id)
    assert set(journal.answers) == {"n1", "n2"}
    if in_review:
        assert await bench.state(grant.id) == "leased"
        await make_call(bench, grant, 3)
        assert (await ledger(bench))[-1]["kind"] == "call"
        assert await end_run(bench, grant) == "succeeded"


async def test_a_call_of_a_run_that_was_replaced_is_an_extra(bench: StoreBench) -> None:
    grant = await start(bench)
    await make_call(bench, grant, 1)
    await after_lease(bench)
    again = await bench.take(worker="w:2")
    assert not await finish(bench, grant, 2)
    await make_call(bench, again, 2)
    assert not await finish(bench, grant, 2), "a repeat"
    assert not await finish(bench, grant, 1), "a repeat from before"
    kinds = [(row["call"], row["kind"], row["fence"] == again.fence) for row in await ledger(bench)]
    assert kinds == [(1, "call", False), (2, "extra", False), (2, "call", True)]
    assert (await acquire(bench, grant, 3)).verdict == "lost"


async def test_a_report_that_is_repeated_after_the_next_run_is_known(bench: StoreBench) -> None:
    grant = await start(bench)
    await make_call(bench, grant, 1)
    await after_lease(bench)
    again = await bench.take(worker="w:2")
    await make_call(bench, again, 2)
    assert not await finish(bench, grant, 1)
    assert [row["kind"] for row in await ledger(bench)] == ["call", "call"]


async def test_a_beat_ends_the_review_of_a_running_call(bench: StoreBench) -> None:
    grant = await start(bench)
    await acquire(bench, grant, 1, worst_nano_usd=900_000_000)
    await bench.send(grant)
    await after_lease(bench)
    await beat(bench, **{grant.id: grant.fence})
    assert await bench.state(grant.id) == "sent"
    assert await finish(bench, grant, 1)
    assert [row["kind"] for row in await ledger(bench)] == ["lost", "correction"]
