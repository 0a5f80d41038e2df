"""One attempt in this process: a granted job, whether its request left, and why it has to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum

from llmqueue.credentials import Credential
from llmqueue.store.port import Grant


class Stop(StrEnum):
    """Why an attempt ends before its call did."""

    DRAINING = "draining"
    """Not sent yet: given back at once."""
    LOST = "lost"
    """Its lease is somebody else's, and nothing was sent."""
    CANCELLED = "cancelled"
    OVERDUE = "overdue"
    """The drain's time is over."""


@dataclass(frozen=True, slots=True)
class Call:
    """The provider call of an attempt that is open, or was last: a payload's one, or a handler's.

    `grant` says what was reserved for this call.
    """

    number: int
    grant: Grant
    started_at: float


class Attempt:
    """A claimed job while this process holds it.

    Times are of the loop's clock. `ends_at`: when its call is over at the latest.
    """

    __slots__ = (
        "_ask",
        "asked",
        "begun",
        "call",
        "credential",
        "draining",
        "ends_at",
        "finished",
        "give_back",
        "grant",
        "own_code",
        "recording",
        "sent",
        "sent_at",
        "started_at",
        "stop",
        "task",
    )

    def __init__(
        self,
        grant: Grant,
        credential: Credential,
        *,
        ask: Callable[[Attempt], Awaitable[None]],
        started_at: float,
        ends_at: float,
    ) -> None:
        self.grant = grant
        self.credential = credential
        self.started_at = started_at
        self.ends_at = ends_at
        self.call = Call(1, grant, started_at)
        self.begun = False
        """Its task has taken its first step."""
        self.give_back = False
        """It is to be released once it has stopped."""
        self.asked = False
        """The store was asked, so it may hold the job as sent."""
        self.sent = False
        """The store said ok: bytes may have left."""
        self.sent_at = 0.0
        """When it said so."""
        self.finished = False
        """The call is over; what came of it is on its way to the store."""
        self.own_code = False
        """A handler's own code runs: a drain lets it go on."""
        self.draining = False
        """The process drains: a handler begins no further call."""
        self.recording = False
        """A handler's call is over, and is told to the store before anything else happens."""
        self.stop: Stop | None = None
        self.task: asyncio.Task[None] | None = None
        self._ask = ask

    async def send(self) -> None:
        """Ask whether the request may leave now. Raises NotSent: it must not."""
        self.asked = True
        await self._ask(self)
        self.sent, self.sent_at = True, asyncio.get_running_loop().time()

    def close_call(self) -> None:
        """A handler's call is settled; the run goes on."""
        self.asked = self.sent = False

    def end_recording(self) -> None:
        """An interruption had to wait for the record; the call's own task sees `stop` itself."""
        self.recording = False
        task = self.task
        if self.stop is not None and task is not None and task is not asyncio.current_task():
            task.cancel()

    def interrupt(self, why: Stop) -> None:
        """End the call; the first reason counts. Nothing happens once the call is over."""
        if self.stop is not None or self.finished:
            return
        self.stop = why
        # A task that is cancelled before its first step never runs: it looks at `stop` instead.
        if self.begun and self.task is not None and not self.recording:
            self.task.cancel()
