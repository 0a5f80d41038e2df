"""The seam between what this process does with jobs and what a job does."""

from __future__ import annotations

from typing import Protocol

from llmqueue.outcome import Outcome
from llmqueue_worker.attempt import Attempt


class Runner(Protocol):
    """Does the work of one attempt."""

    async def run(self, attempt: Attempt) -> Outcome:
        """Do it, and say what it came to.

        Whoever costs the budget anything awaits `attempt.send()` first, and lets its NotSent
        through. `Outcome.sent` False returns the charge and makes no ledger entry. CancelledError
        means: end now. Any other exception is a bug.
        """
        ...

    async def close(self) -> None: ...
