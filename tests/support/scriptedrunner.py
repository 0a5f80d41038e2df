"""Jobs that do what a test says, and a whole worker around them on the virtual clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from llmqueue.outcome import Outcome, Usage
from llmqueue.settings import WorkerSettings
from llmqueue.states import OutcomeClass, ProviderType
from llmqueue_worker.attempt import Attempt
from llmqueue_worker.recycle import Recycling
from llmqueue_worker.runner import Runner
from llmqueue_worker.worker import Ending, Worker
from support.memorystore import MemoryStore
from support.virtualtime import now

Script = Callable[[Attempt], Awaitable[Outcome]]
SUCCESS = Outcome(OutcomeClass.SUCCESS, status=200, usage=Usage(9, 4), result=b"{}")


def settings(**values: Any) -> WorkerSettings:
    defaults = {
        "redis_url": "redis://unused",
        "queue": "default/q",
        "worker_uid": "pod",
        "provider": ProviderType.OPENAI,
        "base_url": "http://unused",
        "slots": 4,
        "drain_seconds": 300,
    }
    return WorkerSettings(**(defaults | values))


class ScriptedRunner:
    """Connects for `connect_seconds`, asks, then takes `seconds`; `script` replaces all that."""

    def __init__(self) -> None:
        self.connect_seconds = 0.0
        self.seconds = 1.0
        self.script: Script | None = None
        self.started: list[str] = []
        self.left: list[str] = []
        """Jobs whose request left."""
        self.closed_calls: list[str] = []
        self.running = 0
        self.most_running = 0
        self.closed = False

    async def run(self, attempt: Attempt) -> Outcome:
        self.started.append(attempt.grant.id)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            if self.script is not None:
                return await self.script(attempt)
            await asyncio.sleep(self.connect_seconds)
            await attempt.send()
            self.left.append(attempt.grant.id)
            await asyncio.sleep(self.seconds)
            return SUCCESS
        except asyncio.CancelledError:
            self.closed_calls.append(attempt.grant.id)
            raise
        finally:
            self.running -= 1

    async def close(self) -> None:
        self.closed = True


class Bench:
    """A worker, its store and its jobs."""

    def __init__(self, **values: Any) -> None:
        self.store, self.runner = MemoryStore(), ScriptedRunner()
        self.memory_mib = 0.0
        config = settings(**values)
        self.worker = Worker(
            config,
            self.store,
            self.runner_of(config),
            recycling=Recycling(config, clock=now, memory=lambda: self.memory_mib),
        )
        self.task: asyncio.Task[Ending] | None = None

    def runner_of(self, _config: WorkerSettings) -> Runner:
        return self.runner

    async def ended(self) -> Ending:
        assert self.task is not None
        return await self.task


@asynccontextmanager
async def working(**values: Any) -> AsyncIterator[Bench]:
    """A worker that is started by `start` or runs already; it ends with the block."""
    bench = Bench(**values)
    yield bench
    if bench.task is not None and not bench.task.done():
        bench.task.cancel()
        with suppress(asyncio.CancelledError):
            await bench.task


def start(bench: Bench) -> None:
    bench.task = asyncio.create_task(bench.worker.run())
