"""SIGTERM and SIGINT, from the first moments of the process on.

Installed before anything heavy is imported: the kernel discards a SIGTERM for which PID 1 has no
handler, and a container would then be killed in the middle of its calls.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from types import FrameType

_HANDLED = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """Counts the signals that ask the process to end."""

    def __init__(self) -> None:
        self.interrupts = 0
        """SIGINTs so far: the second one means now."""
        self._received = 0
        self._notify: Callable[[], None] | None = None

    @property
    def received(self) -> bool:
        return self._received > 0

    def install(self) -> None:
        """Catch the signals; those that `hold_back` kept from a predecessor arrive now."""
        for number in _HANDLED:
            signal.signal(number, self._caught)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)

    def attach(self, loop: asyncio.AbstractEventLoop, notify: Callable[[], None]) -> None:
        """Call `notify` in the loop for each signal, for earlier ones too."""
        self._notify = notify
        for number in _HANDLED:
            loop.add_signal_handler(number, self._count, number)
        if self.received:
            loop.call_soon(notify)

    def detach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Only count from now on; the loop may close."""
        self._notify = None
        for number in _HANDLED:
            loop.remove_signal_handler(number)
        self.install()

    def _caught(self, number: int, _frame: FrameType | None) -> None:
        self._count(number)

    def _count(self, number: int) -> None:
        self._received += 1
        self.interrupts += number == signal.SIGINT
        if self._notify is not None:
            self._notify()


def hold_back() -> None:
    """Keep the signals pending for this thread, across an exec too, until the next `install`."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)
