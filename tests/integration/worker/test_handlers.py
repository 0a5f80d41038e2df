"""Handler jobs in real worker processes: kill -9 between and in calls, drains, cancels, failures."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from llmqueue.config import Limit, RetryPolicy, UnknownOutcomePolicy
from llmqueue.errors import UnknownJob
from llmqueue.states import JobState, LimitUnit
from support.workerprocess import WorkerProcess, eventually
from support.workerworld import World, running_world

MODULE = "jobs_under_test"
KILLS = 5


class Handlers:
    """A world whose workers run the module beside this file."""

    def __init__(self, world: World, folder: Path) -> None:
        self.world, self.bench, self.fake, self.folder = world, world.bench, world.fake, folder

    def worker(self, uid: str = "pod-a", **settings: Any) -> WorkerProcess:
        return self.world.worker(uid=uid, cwd=self.folder, handlers=MODULE, **settings)

    async def enqueue(self, handler: str, **args: Any) -> str:
        fields = args.pop("fields", {})
        payload = json.dumps(args).encode()
        return (await self.bench.enqueue(handler=handler, payload=payload, **fields))[0]

    def gate(self, job: str, place: str) -> Path:
        file = self.folder / f"{job}.{place}"
        file.touch()
        return file

    async def at_gate(self, file: Path) -> None:
        await self.until_true(lambda: not file.exists(), f"a handler at {file.name}")

    async def until_true(self, ask: Callable[[], bool], what: str) -> None:
        async def answer() -> bool:
            return ask()

        await eventually(answer, what=what)

    def lines(self, name: str) -> list[str]:
        """What handlers wrote to a file."""
        file = self.folder / name
        return file.read_text().splitlines() if file.exists() else []

    async def until(self, job: str, *states: str, seconds: float = 30.0) -> None:
        async def reached() -> bool:
            try:
                return await self.bench.state(job) in states
            except UnknownJob:  # a failure job that is not there yet
                return False

        await eventually(reached, seconds=seconds, what=f"{job} {states}")

    async def result(self, job: str) -> Any:
        return json.loads((await self.bench.store.job(job)).result or b"null")

    async def calls(self, job: str) -> Counter[str]:
        """How often each call was billed, by the name that the provider knows it by."""
        log = await self.fake.calls()
        return Counter(call["key"] for call in log if call["job"] == job and call["billed"])

    async def received(self, calls: int) -> None:
        async def there() -> bool:
            return len(await self.fake.calls()) >= calls

        await eventually(there, what=f"{calls} calls at the provider")

    async def begun(self, job: str, *, after: str = "") -> str:
        """Until a run has begun that is not the one with that fence; returns its own."""

        async def another() -> str:
            raw = await self.bench.redis.hget(self.bench.key("j", job), "x")
            fence = (raw or b"").decode()
            return "" if fence == after else fence

        return await eventually(another, what=f"a run of {job}")

    async def booked(self, job: str) -> Counter[int]:
        """How often each call is in the ledger; corrections are none of their own."""
        rows = await self.bench.redis.xrange(self.bench.key("ledger"))
        entries = [json.loads(row[b"e"]) for _, row in rows if row[b"k"] != b"correction"]
        return Counter(entry["call"] for entry in entries if entry["job"] == job)


@pytest.fixture
async def handlers(tmp_path: Path) -> AsyncIterator[Handlers]:
    folder = tmp_path / "app"
    folder.mkdir()
    shutil.copy(Path(__file__).with_name(f"{MODULE}.py"), folder)
    async with running_world(tmp_path) as world:
        await world.bench.configure(budget={"max_crashes": 20}, queue={"handlers": True})
        yield Handlers(world, folder)


async def test_killed_after_each_call_in_turn(handlers: Handlers) -> None:
    """Five calls, kill -9 after each of them: five bills, the right result, ledger = bill."""
    job = await handlers.enqueue("five")
    for number in range(1, KILLS + 1):
        gate = handlers.gate(job, f"after-{number}")
        async with handlers.worker(uid=f"pod-{number}") as worker:
            await handlers.at_gate(gate)
            worker.kill()
    async with handlers.worker(uid="pod-last"):
        await handlers.until(job, "succeeded")
    bills = await handlers.calls(job)
    assert (len(bills), sum(bills.values())) == (5, 5), bills
    assert await handlers.booked(job) == dict.fromkeys(range(1, 6), 1)
    assert len(set(await handlers.result(job))) == 5
    view = await handlers.bench.store.job(job)
    assert (view.attempts_used, view.possible_duplicate) == (1, False)


async def test_killed_in_a_call(handlers: Handlers) -> None:
    """Q49: only the open call is made again, once, and it alone is marked."""
    job = await handlers.enqueue("five", directive="[[sim:latency=3]]")
    async with handlers.worker(uid="pod-a") as worker:

        async def in_third() -> bool:
            return (await handlers.fake.stats())["in_flight"] == 1 and len(
                await handlers.fake.calls()
            ) == 3

        await eventually(in_third, what="the third call")
        await handlers.until(job, "sent")
        worker.kill()
    async with handlers.worker(uid="pod-b"):
        await handlers.until(job, "succeeded")
    bills = await handlers.calls(job)
    assert sorted(bills.values()) == [1, 1, 1, 1, 2], "the same name for the same call"
    assert await handlers.booked(job) == {1: 1, 2: 1, 3: 2, 4: 1, 5: 1}
    rows = await handlers.world.ledger()
    assert [row["call"] for row in rows if row.get("possible_duplicate")] == [3]


@pytest.mark.parametrize("seed", [1, 2])
async def test_killed_at_any_moment(handlers: Handlers, seed: int) -> None:
    """Whatever moment it is: what was recorded is not paid again, and ledger = bill."""
    rng, fence = random.Random(seed), ""
    again = RetryPolicy(unknown_outcome=UnknownOutcomePolicy(max_auto_retries=KILLS))
    await handlers.bench.configure(budget={"max_crashes": 1000}, queue={"retry": again})
    job = await handlers.enqueue("five", directive="[[sim:latency=0.2]]")
    for kill in range(KILLS):
        async with handlers.worker(uid=f"pod-{kill}") as worker:
            fence = await handlers.begun(job, after=fence)
            await asyncio.sleep(rng.uniform(0, 0.15))
            worker.kill()
    async with handlers.worker(uid="pod-last"):
        await handlers.until(job, "succeeded", "review")
    bills, booked = await handlers.calls(job), await handlers.booked(job)
    view = await handlers.bench.store.job(job)
    # A call that was cut off is booked at its worst case, whether it had reached the provider or not.
    assert sum(bills.values()) <= sum(booked.values())
    assert max(bills.values()) == 1 or view.possible_duplicate
    if view.state is JobState.SUCCEEDED:
        assert set(booked) == set(range(1, 6))


async def test_the_same_request_twice_is_two_calls(handlers: Handlers) -> None:
    job = await handlers.enqueue("twice_the_same")
    async with handlers.worker():
        await handlers.until(job, "succeeded")
    assert len(set(await handlers.result(job))) == 2
    assert list((await handlers.calls(job)).values()) == [1, 1]


async def test_a_slot_is_one_call_at_a_time(handlers: Handlers) -> None:
    job = await handlers.enqueue("side_by_side", seconds=0.3)
    async with handlers.worker():
        await handlers.until(job, "succeeded")
    assert await handlers.result(job) == 3
    assert (await handlers.fake.stats())["max_in_flight"] == 1


async def test_a_refused_call_can_be_caught(handlers: Handlers) -> None:
    job = await handlers.enqueue("refused_once")
    async with handlers.worker():
        await handlers.until(job, "succeeded")
    assert await handlers.result(job) == "400"
    rows = await handlers.world.ledger()
    assert [(row["call"], row["class"]) for row in rows] == [(1, "PERMANENT"), (2, "SUCCESS")]


async def test_a_rate_limit_in_a_call_replays_what_was_paid(handlers: Handlers) -> None:
    job = await handlers.enqueue("five")
    gate = handlers.gate(job, "after-2")
    async with handlers.worker(uid="pod-a") as worker:
        await handlers.at_gate(gate)
        worker.kill()
    await handlers.fake.faults([{"fault": "rate429", "count": 1}])
    async with handlers.worker(uid="pod-b"):
        await handlers.until(job, "succeeded", seconds=40)
    assert list((await handlers.calls(job)).values()) == [1] * 5
    rows = await handlers.world.ledger()
    assert [(row["call"], row["class"]) for row in rows if row["class"] != "SUCCESS"] == [
        (3, "RATE")
    ]
    assert (await handlers.bench.store.job(job)).attempts_used == 1


# ---------------------------------------------------------------- drains and cancels


async def test_a_drain_lets_the_open_call_end_and_keeps_its_answer(handlers: Handlers) -> None:
    """S11: the job goes back without an attempt; the next worker pays only what is left."""
    job = await handlers.enqueue("five", directive="[[sim:latency=2]]")
    async with handlers.worker(uid="pod-a") as worker:
        await handlers.received(3)
        worker.terminate()
        assert await worker.exit_code() == 0
    view = await handlers.bench.store.job(job)
    assert (str(view.state), view.attempts_used) == ("ready", 0)
    assert await handlers.booked(job) == {1: 1, 2: 1, 3: 1}
    async with handlers.worker(uid="pod-b"):
        await handlers.until(job, "succeeded")
    assert sum((await handlers.calls(job)).values()) == 5


async def test_a_drain_lets_own_code_go_on_to_its_end(handlers: Handlers) -> None:
    job = await handlers.enqueue("naps", seconds=2)
    async with handlers.worker(uid="pod-a") as worker:
        await handlers.until_true(lambda: bool(handlers.lines("napping")), "a nap")
        worker.terminate()
        assert await worker.exit_code() == 0
    assert await handlers.bench.state(job) == "succeeded"


async def test_own_code_that_outlasts_the_drain_goes_back(handlers: Handlers) -> None:
    job = await handlers.enqueue("naps", seconds=60)
    async with handlers.worker(uid="pod-a", drain_seconds=1) as worker:
        await handlers.until_true(lambda: bool(handlers.lines("napping")), "a nap")
        worker.terminate()
        assert await worker.exit_code(seconds=10) == 0
    view = await handlers.bench.store.job(job)
    assert (str(view.state), view.attempts_used) == ("ready", 0)


async def test_a_drain_releases_who_waits_for_the_budget(handlers: Handlers) -> None:
    await handlers.bench.configure(budget={"limits": (Limit(LimitUnit.REQUESTS, 2, 10),)})
    job = await handlers.enqueue("five")
    async with handlers.worker(uid="pod-a") as worker:
        await handlers.received(2)
        await handlers.until(job, "leased")
        worker.terminate()
        assert await worker.exit_code(seconds=5) == 0
    view = await handlers.bench.store.job(job)
    assert (str(view.state), view.attempts_used) == ("ready", 0)
    assert len((await handlers.bench.store.journal(handlers.bench.queue, job)).answers) == 2


@pytest.mark.parametrize(
    ("handler", "args"),
    [("five", {"directive": "[[sim:latency=30]]"}), ("naps", {"seconds": 60})],
    ids=["in a call", "in own code"],
)
async def test_cancel(handlers: Handlers, handler: str, args: dict[str, Any]) -> None:
    """Q48: ends within a heartbeat, and its slot is free."""
    job = await handlers.enqueue(handler, **args)
    async with handlers.worker(slots=1):
        if handler == "five":
            await handlers.received(3)
        else:
            await handlers.until_true(lambda: bool(handlers.lines("napping")), "a nap")
        await handlers.bench.store.cancel(job)
        await handlers.until(job, "cancelled", seconds=5)
        after = await handlers.enqueue("naps", seconds=0)
        await handlers.until(after, "succeeded", seconds=10)


# ---------------------------------------------------------------- failures


async def test_failures_are_reported(handlers: Handlers) -> None:
    job = await handlers.enqueue("fails", calls=1)
    async with handlers.worker():
        await handlers.until(f"{job}.f1", "succeeded")
    assert handlers.lines("failures") == [f"{job}.f1 dead this can never work"]


async def test_failures_under_kills(handlers: Handlers) -> None:
    """kill -9 at random moments of workers whose jobs fail: each is reported, by one job."""
    await _report_under_kills(handlers, jobs=30, kills=6)


@pytest.mark.soak
@pytest.mark.timeout(3600)
async def test_failures_over_200_kills(handlers: Handlers) -> None:
    """The same over 200 kills."""
    await _report_under_kills(handlers, jobs=600, kills=200)


async def _report_under_kills(handlers: Handlers, *, jobs: int, kills: int) -> None:
    await handlers.bench.configure(budget={"max_crashes": 1000})
    rng, ids = random.Random(5), list[str]()
    for kill in range(kills):
        ids += [await handlers.enqueue("fails") for _ in range(jobs // kills)]
        async with handlers.worker(uid=f"pod-{kill}", slots=4) as worker:
            await asyncio.sleep(rng.uniform(0.0, 0.1))
            worker.kill()
    async with handlers.worker(uid="pod-last", slots=8):
        for job in ids:
            await handlers.until(f"{job}.f1", "succeeded", seconds=60)
    start = handlers.bench.key("j", "")
    kept = [key.decode() async for key in handlers.bench.redis.scan_iter(match="*", count=1000)]
    failures = [key.removeprefix(start) for key in kept if key.startswith(start) and ".f" in key]
    assert sorted(failures) == sorted(f"{job}.f1" for job in ids)
    reported = {line.split(" ", 1)[0] for line in handlers.lines("failures")}
    assert reported == set(failures)


# ---------------------------------------------------------------- what cannot run


@pytest.mark.parametrize(
    ("handler", "args", "words"),
    [
        ("naps", {"seconds": "soon"}, "argument seconds"),
        ("naps", {}, "argument seconds: Field required"),
    ],
    ids=["wrong argument", "missing argument"],
)
async def test_jobs_that_cannot_run_are_dead_at_once(
    handlers: Handlers, handler: str, args: dict[str, Any], words: str
) -> None:
    job = await handlers.enqueue(handler, **args)
    async with handlers.worker():
        await handlers.until(job, "dead")
    view = await handlers.bench.store.job(job)
    assert view.error is not None
    assert words in view.error["message"]
    assert (view.error["class"], view.attempts_used) == ("PERMANENT", 1)


async def test_what_old_workers_do_not_know_runs_on_new_ones(handlers: Handlers) -> None:
    """In a rollout a job may meet a worker of before; it is tried again, not dead."""
    job = await handlers.enqueue("five")
    async with handlers.world.worker():
        await handlers.until(job, "delayed")
    view = await handlers.bench.store.job(job)
    assert "set spec.worker.handlers" in view.attempts[-1]["message"]
    async with handlers.worker():
        await handlers.until(job, "succeeded")


async def test_payload_jobs_run_beside_handlers(handlers: Handlers) -> None:
    (payload,) = await handlers.world.enqueue(0.0)
    job = await handlers.enqueue("naps", seconds=0)
    async with handlers.worker():
        await handlers.until(payload, "succeeded")
        await handlers.until(job, "succeeded")


@pytest.mark.parametrize(
    ("module", "source", "words"),
    [
        ("missing.jobs", None, "there is no module 'missing.jobs'"),
        ("empty", "", "has no attribute `app`"),
        ("wrong", "app = object()", "must be an App"),
        ("broken", "import nowhere_to_be_found", "ModuleNotFoundError"),
        ("raises", "1 / 0", "ZeroDivisionError"),
    ],
)
async def test_a_module_that_cannot_be_used_ends_the_worker(
    handlers: Handlers, module: str, source: str | None, words: str
) -> None:
    if source is not None:
        (handlers.folder / f"{module}.py").write_text(source)
    worker = handlers.world.worker(cwd=handlers.folder, handlers=module)
    worker.spawn()
    assert await worker.exit_code() == 2
    assert words in worker.log("settings-unusable")[0]["message"]
