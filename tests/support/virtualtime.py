"""An event loop whose clock jumps: what waits an hour is done at once, in the right order."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")
_MOST_SECONDS = 1_000_000.0


class _JumpingSelector(selectors.DefaultSelector):  # type: ignore[valid-type,misc]
    """Never waits: the time that it would have waited has passed afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        events = super().select(0)
        if events or timeout == 0:
            return events
        if timeout is None:
            raise RuntimeError("nothing will ever happen any more: a deadlock")
        self.now += max(timeout, 1e-6)
        if self.now > _MOST_SECONDS:
            raise RuntimeError("still not done after a million seconds")
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


def run_virtually(scenario: Coroutine[Any, Any, Result]) -> Result:
    """Run a scenario on a loop of its own."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(scenario)


async def settle_down(turns: int = 20) -> None:
    """Let everything run that is ready now; no time passes."""
    for _ in range(turns):
        await asyncio.sleep(0)


def now() -> float:
    return asyncio.get_running_loop().time()
