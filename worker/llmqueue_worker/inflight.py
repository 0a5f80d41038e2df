"""What this process holds: attempts by fence, and the slots they take."""

from __future__ import annotations

import asyncio

from llmqueue.store.port import Held
from llmqueue_worker.attempt import Attempt


class InFlight:
    """Attempts from their claim until the store has acknowledged their end.

    `freed` is set whenever a slot becomes free, `cleared` when the last suspect job has left.
    """

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.freed = asyncio.Event()
        self.cleared = asyncio.Event()
        self.idle = asyncio.Event()
        self.idle.set()
        self.ended = 0
        """Attempts that came to their end here."""
        # By fence: a job whose lease was lost may come back here while its first call still runs.
        self._attempts: dict[str, Attempt] = {}
        self._suspects = 0

    def __len__(self) -> int:
        return len(self._attempts)

    @property
    def free(self) -> int:
        return self.slots - len(self._attempts)

    @property
    def clean(self) -> bool:
        """No job runs here whose earlier run ended with its process."""
        return self._suspects == 0

    def attempts(self) -> list[Attempt]:
        return list(self._attempts.values())

    def get(self, fence: str) -> Attempt | None:
        return self._attempts.get(fence)

    def leases(self) -> dict[str, str]:
        """Job id → fence, the newest one of a job."""
        return {attempt.grant.id: fence for fence, attempt in self._attempts.items()}

    def held(self, now: float) -> dict[str, Held]:
        """Job id → what a store is told that lost the lease, and what the open call reserved; of
        one that ends unsent, nothing."""
        newest = {attempt.grant.id: attempt for attempt in self._attempts.values()}
        return {
            job: Held(
                attempt.call.grant.input_tokens,
                attempt.call.grant.output_tokens,
                now - attempt.sent_at if attempt.sent else None,
            )
            for job, attempt in newest.items()
            if attempt.sent or not (attempt.finished or attempt.stop)
        }

    def longest_remaining(self, now: float) -> float:
        """Seconds until the last call is over at the latest; 0 with none."""
        return max((a.ends_at - now for a in self._attempts.values()), default=0.0)

    def add(self, attempt: Attempt) -> None:
        self._attempts[attempt.grant.fence] = attempt
        self._suspects += attempt.grant.crashes > 0
        self.idle.clear()

    def remove(self, attempt: Attempt) -> None:
        del self._attempts[attempt.grant.fence]
        if attempt.grant.crashes > 0:
            self._suspects -= 1
            if self.clean:
                self.cleared.set()
        self.ended += 1
        self.freed.set()
        if not self._attempts:
            self.idle.set()
