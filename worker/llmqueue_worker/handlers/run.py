"""One run of a handler: its own time, the call that is open, and its end.

The function may be in the way of its own end: it catches exceptions, swallows cancellations, leaves
tasks behind. So the first end that something here decided is kept, and counts whatever follows.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from llmqueue.outcome import Outcome
from llmqueue.providers.http import NotSent
from llmqueue.states import OutcomeClass
from llmqueue_worker.attempt import Attempt

Verdict = Outcome | NotSent
"""What the run came to; NotSent: the job goes back, or is gone already."""


class Ended(BaseException):
    """Raised in a handler whose run is over. No `except Exception` catches it."""


class HandlerRun:
    """`seconds`: how long the function may take in all, waits for the budget not counted.

    Make it in the task that runs the function.
    """

    def __init__(self, attempt: Attempt, *, seconds: float) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101
        self.attempt = attempt
        self.verdict: Verdict | None = None
        self._task = task
        self._loop = asyncio.get_running_loop()
        self._left_seconds = seconds
        self._ticking_since: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._turn = asyncio.Lock()
        self._caller: asyncio.Task[object] | None = None
        self._over = asyncio.Event()
        self.timed_out = False
        """Its task was cancelled because its time was over."""

    # ------------------------------------------------------------ its end

    def end(self, verdict: Verdict) -> Ended:
        """Decide the end, unless one is decided; raise what this returns."""
        if self.verdict is None:
            self.verdict = verdict
        return Ended("the run of this handler is over")

    def check(self) -> None:
        """Raises where nothing may happen in this run any more."""
        if self.attempt.stop is not None:
            raise asyncio.CancelledError
        if self.verdict is not None:
            raise Ended("the run of this handler is over")
        if self._over.is_set():
            raise RuntimeError("the handler has returned: its context can't be used any more")

    async def close(self) -> None:
        """Let no call begin; one that the function left open comes to its end first."""
        self._stop_clock()
        self.attempt.own_code = False
        self._over.set()
        if self.attempt.stop is not None:
            self._close_call()
        try:
            async with self._turn:
                return
        except asyncio.CancelledError:
            self._close_call()
            async with self._turn:
                raise

    def _close_call(self) -> None:
        if self._caller is not None and self._caller is not self._task:
            self._caller.cancel()

    # ------------------------------------------------------------ its time

    @property
    def left_seconds(self) -> float:
        ticked = 0.0 if self._ticking_since is None else self._loop.time() - self._ticking_since
        return self._left_seconds - ticked

    def start_own_code(self) -> None:
        """The function runs, on its own time."""
        self.attempt.own_code = True
        self._ticking_since = self._loop.time()
        self._timer = self._loop.call_later(max(0.0, self._left_seconds), self._overdue)
        self._tell_end()

    def _stop_clock(self) -> None:
        self._left_seconds = self.left_seconds
        self._ticking_since = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tell_end(self) -> None:
        self.attempt.ends_at = self._loop.time() + max(0.0, self.left_seconds)

    def _overdue(self) -> None:
        """Cancels the function; whoever awaits it sees the verdict."""
        self._timer = None
        if self.attempt.stop is None and self.verdict is None:
            self.end(
                Outcome(
                    OutcomeClass.TRANSIENT,
                    sent=False,
                    own=True,
                    code="attempt_timeout",
                    message="the attempt took longer than timeouts.attemptSeconds",
                )
            )
            self._task.cancel()
            self.timed_out = True

    # ------------------------------------------------------------ its calls

    @asynccontextmanager
    async def turn(self) -> AsyncGenerator[None]:
        """One call at a time: a slot is one call in flight. The function's time stands still."""
        async with self._turn:
            self.check()
            self._caller = asyncio.current_task()
            self._stop_clock()
            self.attempt.own_code = False
            try:
                yield
            finally:
                self._caller = None
                if not self._over.is_set():
                    self.start_own_code()

    async def wait(self, seconds: float) -> None:
        """For the budget. Raises as `check`."""
        self._tell_end()
        try:
            async with asyncio.timeout(seconds):
                await self._over.wait()
        except TimeoutError:
            pass
        self.check()

    def take_own_time(self, seconds: float) -> None:
        """What a call took is the function's time, too."""
        self._left_seconds -= seconds
