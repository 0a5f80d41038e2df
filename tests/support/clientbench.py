"""A client and the worker's side of its queue, in few words."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from llmqueue.client import Client
from llmqueue.states import OutcomeClass
from support.storebench import StoreBench

T = TypeVar("T")
PAYLOAD = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 9}


def payload(text: str = "hi", **fields: Any) -> dict[str, Any]:
    return {**PAYLOAD, "messages": [{"role": "user", "content": text}], **fields}


@dataclass
class ClientBench:
    """`client` for what a producer does, `worker` for what comes of it."""

    client: Client
    worker: StoreBench
    url: str

    @property
    def queue(self) -> str:
        return self.worker.queue

    async def succeed(self, result: bytes = b'{"ok":true}') -> str:
        """Run the next job to its result; returns its id."""
        return (await self.worker.run_one(result=result)).id

    async def fail(self, kind: OutcomeClass = OutcomeClass.PERMANENT, **outcome: Any) -> str:
        return (await self.worker.run_one(kind, **outcome)).id

    async def listened(self) -> None:
        """Until the client hears of what happens, so that a test need not wait for a safety look."""
        run = self.worker.key("run")
        async with asyncio.timeout(5):
            while not await self.worker.redis.hexists(run, "lsn"):
                await asyncio.sleep(0.005)

    async def waiting(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Something that waits for jobs, started and listening."""
        task = asyncio.create_task(work)
        await self.listened()
        return task
