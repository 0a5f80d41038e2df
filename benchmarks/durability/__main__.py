"""`python -m benchmarks.durability`: latency and jobs a second of Standard and Strict."""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from redis.asyncio import Redis

from benchmarks.machine import facts, sentence
from benchmarks.server import Server
from benchmarks.tables import table
from llmqueue.config import BudgetConfig, Limit, QueueConfig
from llmqueue.job import Charge, NewJob
from llmqueue.outcome import Outcome, Usage
from llmqueue.states import LimitUnit, OutcomeClass, ProviderType
from llmqueue.store import RedisStore, connect, keys
from llmqueue.store.port import ClaimRequest, Settlement

HERE = Path(__file__).parent
QUEUE = "bench/durability"
PAYLOAD = b'{"model":"m","messages":[{"role":"user","content":"Summarise this, please."}]}'
BATCH = 16


@dataclass(frozen=True, slots=True)
class Setup:
    name: str
    durability: str
    appendfsync: str
    replicas: int = 0


@dataclass(frozen=True, slots=True)
class Measured:
    enqueue_ms: float
    enqueue_p99_ms: float
    jobs_single: float
    """Jobs a second, one at a time: claim, sent, settle."""
    jobs_batched: float
    """The same with 16 in each step, as busy workers do."""


SETUPS = (
    Setup("Standard, everysec", "Standard", "everysec"),
    Setup("Standard, always", "Standard", "always"),
    Setup("Strict, always", "Strict", "always"),
    Setup("Strict, always, one replica", "Strict", "always", replicas=1),
    Setup("Strict, everysec", "Strict", "everysec"),
)


async def _run_jobs(store: RedisStore, code: str, *, batch: int, seconds: float) -> float:
    done, spent = 0, 0.0
    while spent < seconds:
        jobs = [_job(code) for _ in range(10 * batch)]
        await store.enqueue(jobs)
        start = time.perf_counter()
        while True:
            grants = (await store.claim(ClaimRequest(QUEUE, "w:1", batch))).grants
            if not grants:
                break
            await store.mark_sent(QUEUE, [(g.id, g.fence) for g in grants], credential="")
            outcome = Outcome(OutcomeClass.SUCCESS, usage=Usage(10, 20), result=b'{"ok":true}')
            entries = [Settlement(g.id, g.fence, outcome, entry={"job": g.id}) for g in grants]
            await store.settle(QUEUE, entries)
            done += len(grants)
        spent += time.perf_counter() - start
    return done / spent


def _job(code: str) -> NewJob:
    return NewJob(keys.new_job_id(code), QUEUE, PAYLOAD, Charge(20, 50, 1000))


async def _measure(url: str, setup: Setup, *, seconds: float) -> Measured:
    store = await connect(url)
    limits = (Limit(LimitUnit.REQUESTS, 10**9),)
    queue = QueueConfig(QUEUE, QUEUE, ProviderType.OPENAI, durability=setup.durability)
    await store.configure(BudgetConfig(QUEUE, limits), [queue])
    code = (await store.registry())[QUEUE].code
    took: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        await store.enqueue([_job(code)])
        took.append((time.perf_counter() - start) * 1000)
    await _run_jobs(store, code, batch=BATCH, seconds=0.01)  # what was enqueued for the latencies
    single = await _run_jobs(store, code, batch=1, seconds=seconds)
    batched = await _run_jobs(store, code, batch=BATCH, seconds=seconds)
    await store.close()
    took.sort()
    return Measured(
        statistics.median(took), took[min(len(took) - 1, len(took) * 99 // 100)], single, batched
    )


async def _with_servers(setup: Setup, *, seconds: float) -> Measured:
    options = {"appendfsync": setup.appendfsync, "repl-diskless-sync-delay": "0"}
    with ExitStack() as stack:
        primary = stack.enter_context(Server(options))
        for _ in range(setup.replicas):
            replica = stack.enter_context(Server(options))
            client = Redis.from_url(replica.url)
            await client.execute_command(
                "REPLICAOF", "127.0.0.1", primary.url[:-2].rpartition(":")[2]
            )
            while (await client.info("replication")).get("master_link_status") != "up":  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            await client.aclose()
        url = f"{primary.url}?min_replicas={setup.replicas}"
        return await _measure(url, setup, seconds=seconds)


def _report(measured: dict[str, Measured]) -> str:
    rows = [
        [
            name,
            f"{m.enqueue_ms:.2f}",
            f"{m.enqueue_p99_ms:.2f}",
            f"{m.jobs_single:,.0f}",
            f"{m.jobs_batched:,.0f}",
        ]
        for name, m in measured.items()
    ]
    head = ["", "enqueue ms", "p99", "jobs/s, one by one", f"jobs/s, {BATCH} a step"]
    return table(head, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    seconds = parser.parse_args().seconds
    machine = facts()
    measured = {s.name: asyncio.run(_with_servers(s, seconds=seconds)) for s in SETUPS}
    text = _report(measured)
    print(text)
    results = {"machine": machine, "measured": {n: asdict(m) for n, m in measured.items()}}
    (HERE / "results.json").write_text(json.dumps(results, indent=2) + "\n")
    (HERE / "results.md").write_text(f"# Standard and Strict\n\n{sentence(machine)}\n\n{text}\n")


if __name__ == "__main__":
    main()
