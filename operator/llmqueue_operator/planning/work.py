"""The jobs of a queue that workers could be busy with."""

from __future__ import annotations

from dataclasses import dataclass, replace

from llmqueue.states import JobState
from llmqueue.store.snapshots import QueueSnapshot


@dataclass(frozen=True, slots=True)
class Work:
    """Jobs by what they need: `claimable` now, `due` before a new worker is ready, `in_flight` with
    any worker, of these `draining` with workers that go. Those that wait, too, are `held_back`
    where no limit of the day has room for them, `kept` by the limits of their tenants and bands.

    A suspended queue hands nothing out: only its running calls are work.
    """

    claimable: int
    due: int
    in_flight: int
    draining: int
    wants_grants: bool = True
    held_back: int = 0
    kept: int = 0

    def within(self, grants: float) -> Work:
        """As far as so many grants go: what they do not reach is held back."""
        claimable = int(min(self.claimable, max(0.0, grants)))
        due = int(min(self.due, max(0.0, grants - claimable)))
        held_back = self.waiting - claimable - due
        return replace(self, claimable=claimable, due=due, held_back=held_back)

    @property
    def waiting(self) -> int:
        """Jobs that still need a grant, and may get one."""
        return self.claimable + self.due

    @property
    def staying(self) -> int:
        """In flight on workers that stay."""
        return max(0, self.in_flight - self.draining)

    @property
    def backlog(self) -> int:
        """B of the formula."""
        return self.waiting + self.staying

    @property
    def total(self) -> int:
        return self.waiting + self.in_flight


def work_of(seen: QueueSnapshot, draining_in_flight: int) -> Work:
    """Read a queue's states; `draining_in_flight` as the workers' leases show it."""
    in_flight = seen.states.get(JobState.LEASED, 0) + seen.states.get(JobState.SENT, 0)
    if seen.suspended:
        return Work(0, 0, in_flight, draining_in_flight, wants_grants=False)
    return Work(seen.claimable, seen.due_soon, in_flight, draining_in_flight, kept=seen.held_back)
