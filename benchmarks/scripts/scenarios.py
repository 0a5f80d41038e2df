"""What scripts are measured under: depth, and a great many things due at once."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.scripts.bench import QUEUE, WORKER, Bench
from llmqueue.client import CHUNK_JOBS
from llmqueue.states import WaitReason
from llmqueue.store.port import Grant
from llmqueue_worker.batching import MOST_ITEMS

_OTHER = "other:0"
Durations = dict[str, list[float]]
"""Script, with its batch where that matters → microseconds of each call."""


async def waiting(bench: Bench, *, depth: int, turns: int) -> Durations:
    """The whole life of jobs while `depth` others wait: one by one, and in batches."""
    found: Durations = {}
    bench.clock.recording = False
    await bench.fill(depth)
    for size in (1, MOST_ITEMS):
        await bench.fill(size * turns)
        bench.clock.recording = True
        for _ in range(turns):
            await _turn(bench, size)
        for script, durations in bench.clock.take().items():
            found[f"{script} × {size}"] = durations
        bench.clock.recording = False
    bench.clock.recording = True
    for _ in range(turns):
        ids = await bench.fill(CHUNK_JOBS)
        await bench.cancel(ids[-1])
        await bench.snapshot()
    rest = bench.clock.take()
    rest[f"enqueue × {CHUNK_JOBS}"] = rest.pop("enqueue")
    return found | rest


async def _turn(bench: Bench, size: int) -> None:
    grants = await _claimed(bench, size)
    await bench.beat(grants)
    await bench.release(grants)
    grants = await _claimed(bench, size)
    await bench.send(grants)
    await bench.settle(grants)


async def _claimed(bench: Bench, size: int) -> Sequence[Grant]:
    reply = await bench.claim(size)
    assert len(reply.grants) == size, f"{len(reply.grants)} of {size}: {reply.reason} {reply.limit}"
    return reply.grants


async def claims_only(bench: Bench, *, depth: int, turns: int) -> Durations:
    """Claims of one job each, the figure that must not grow with depth."""
    bench.clock.recording = False
    await bench.fill(depth)
    bench.clock.recording = True
    for _ in range(turns):
        grants = (await bench.claim(1)).grants
        assert len(grants) == 1, "a claim was refused"
        await bench.settle(grants)
    return {"claim": bench.clock.take()["claim"]}


async def tenants_claimed(bench: Bench, *, tenants: int, jobs: int, size: int) -> Durations:
    """Claims of `size` jobs each, until `jobs` that belong to so many tenants are gone."""
    bench.clock.recording = False
    await bench.fill(jobs, tenants=(f"tenant-{n % tenants}" for n in range(jobs)))
    await bench.claim(0)
    await bench.advance(2)  # pacers start empty
    bench.clock.recording = True
    for _ in range(jobs // size):
        await bench.settle(await _claimed(bench, size))
    return {f"claim × {size}": bench.clock.take()["claim"]}


async def leases_expire(bench: Bench, *, leases: int) -> Durations:
    """All at once, half of them sent: workers vanished with everything that they held."""
    bench.clock.recording = False
    await bench.fill(leases)
    held: list[Grant] = []
    while len(held) < leases:
        grants = (await bench.claim(min(MOST_ITEMS, leases - len(held)))).grants
        if len(held) % (2 * MOST_ITEMS) == 0:
            await bench.send(grants)
        held += grants
    await bench.store.leave(QUEUE, WORKER)
    await bench.advance(7200)
    bench.clock.recording = True
    await _until_quiet(bench)
    found = bench.clock.take()
    left = await _in_state(bench, "leased") + await _in_state(bench, "sent")
    assert left == 0, f"{left} leases are still held"
    return found


async def due_at_once(bench: Bench, *, jobs: int) -> Durations:
    """Delayed jobs, all due in the same moment."""
    bench.clock.recording = False
    await bench.fill(jobs, delay_seconds=3000)
    await bench.advance(6000)
    bench.clock.recording = True
    await _until_quiet(bench)
    found = bench.clock.take()
    assert await _in_state(bench, "delayed") == 0, "delayed jobs are left"
    return found


async def cancelled_at_the_head(bench: Bench, *, jobs: int) -> Durations:
    """A claim has to get past all of them to the one job that is ready."""
    bench.clock.recording = False
    ids = await bench.fill(jobs)
    for one in ids:
        await bench.cancel(one)
    (last,) = await bench.fill(1)
    bench.clock.recording = True
    found: Sequence[Grant] = ()
    while not found:
        reply = await bench.claim(1)
        found = reply.grants
        assert found or reply.reason is WaitReason.AGAIN, f"stopped: {reply.reason}"
    assert found[0].id == last, "another job than the one that is ready"
    return bench.clock.take()


async def _until_quiet(bench: Bench) -> None:
    """Claims for no slots, heartbeats and snapshots in turn, until housekeeping is done.

    A worker that holds nothing makes them: each script does its share of what is due.
    """
    turn = 0
    while True:
        turn += 1
        if turn % 3 == 0:
            await bench.beat((), worker=_OTHER)
        if turn % 3 == 1:
            await bench.claim(0, worker=_OTHER)
        if not await bench.snapshot():
            return


async def _in_state(bench: Bench, state: str) -> int:
    states = (await bench.store.queue_status(QUEUE))["states"]
    return int(states.get(state, 0))
