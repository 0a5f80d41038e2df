"""llmqueue: the worker process' own parts around a runner that makes no call.

    llmqueue_program.py produce JOBS
    llmqueue_program.py work noop|sent

Every limit is set, so high that none binds: each claim still checks and charges all of them.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from typing import Any

import body

from llmqueue import logging
from llmqueue.client import Client, JobSpec
from llmqueue.config import BudgetConfig, Limit, QueueConfig
from llmqueue.outcome import Outcome, Usage
from llmqueue.settings import WorkerSettings
from llmqueue.states import LimitUnit, OutcomeClass, ProviderType
from llmqueue.store import connect
from llmqueue_worker.attempt import Attempt
from llmqueue_worker.worker import Worker

QUEUE = "bench/jobs"
NEVER_REACHED = 1_000_000_000
_RESULT = b'{"ok":true}'


def configuration() -> tuple[BudgetConfig, QueueConfig]:
    """A budget with a limit of every unit and of calls in flight, and its one queue."""
    limits = tuple(Limit(unit, NEVER_REACHED) for unit in LimitUnit)
    budget = BudgetConfig(QUEUE, limits, max_in_flight=1_000_000)
    return budget, QueueConfig(QUEUE, QUEUE, ProviderType.OPENAI, max_jobs=10_000_000)


def settings() -> WorkerSettings:
    return WorkerSettings(
        redis_url=body.URL,
        queue=QUEUE,
        worker_uid="bench",
        provider=ProviderType.OPENAI,
        base_url="http://127.0.0.1:9",
        slots=body.SLOTS,
        log_level="warning",
    )


class NoCall:
    """Ends at once: the store is not asked before sending, and no ledger entry is made."""

    async def run(self, attempt: Attempt) -> Outcome:
        await body.job(json.loads(attempt.grant.payload))
        return Outcome(OutcomeClass.SUCCESS, sent=False, result=_RESULT)

    async def close(self) -> None:
        return


class SentNoCall(NoCall):
    """All bookkeeping of a call: the store decides whether it may leave; one ledger entry."""

    async def run(self, attempt: Attempt) -> Outcome:
        await attempt.send()
        await body.job(json.loads(attempt.grant.payload))
        return Outcome(
            OutcomeClass.SUCCESS,
            status=200,
            usage=Usage(attempt.grant.input_tokens, 8),
            result=_RESULT,
            model=attempt.grant.model,
        )


async def work(kind: str) -> None:
    store = await connect(body.URL)
    runner = SentNoCall() if kind == "sent" else NoCall()
    worker = Worker(settings(), store, runner)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
    try:
        await worker.run()
    finally:
        await store.close()


async def produce() -> None:
    store = await connect(body.URL)
    budget, queue = configuration()
    await store.configure(budget, [queue])
    client = Client(store)
    jobs: list[dict[str, Any]] = [body.payload(n) for n in range(body.wanted())]
    await client.entry(QUEUE)
    with body.Clock():
        await client.enqueue_many(QUEUE, [JobSpec(payload=job) for job in jobs])
    await store.close()


def run_worker(kind: str) -> None:
    """As the worker's own `main` runs it: on uvloop."""
    import uvloop

    logging.configure("warning", "json")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work(kind))


if __name__ == "__main__":
    if sys.argv[1] == "work":
        run_worker(sys.argv[2])
    else:
        asyncio.run(produce())
