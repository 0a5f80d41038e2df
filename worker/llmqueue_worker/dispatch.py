"""Which runner a job is for."""

from __future__ import annotations

from llmqueue.outcome import Outcome
from llmqueue_worker.attempt import Attempt
from llmqueue_worker.runner import Runner


class JobRunner:
    """Jobs that name a handler go to `handlers`, all others to `payloads`."""

    def __init__(self, payloads: Runner, handlers: Runner) -> None:
        self._payloads, self._handlers = payloads, handlers

    async def run(self, attempt: Attempt) -> Outcome:
        runner = self._handlers if attempt.grant.handler else self._payloads
        return await runner.run(attempt)

    async def close(self) -> None:
        await self._handlers.close()
        await self._payloads.close()
