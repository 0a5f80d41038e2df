"""The end of a process image: nothing new, unsent jobs back at once, running calls to their end."""

from __future__ import annotations

import asyncio

import structlog

from llmqueue_worker.inflight import InFlight
from llmqueue_worker.pump import Pump
from llmqueue_worker.recorder import Recorder
from llmqueue_worker.run import Runs

_log = structlog.get_logger()


async def drain(
    pump: Pump,
    pumping: asyncio.Task[None],
    runs: Runs,
    recorder: Recorder,
    in_flight: InFlight,
    *,
    seconds: float,
) -> None:
    """Returns when every attempt is settled or given back.

    Calls that still run after `seconds` are closed and settled as unknown; the settles themselves
    are repeated for as long as the process is allowed to live.
    """
    pump.stop()
    runs.drain()
    try:
        async with asyncio.timeout(seconds):
            # A claim that is on its way still brings jobs: they are given back at once.
            await pumping
            await in_flight.idle.wait()
            return
    except TimeoutError:
        _log.error("drain-overdue", attempts=len(in_flight), drain_seconds=seconds)
    recorder.waiting_ended = True
    runs.end()
    await in_flight.idle.wait()
