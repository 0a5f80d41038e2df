"""bullmq: its worker has no command of its own; bulk enqueue."""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import Any

import body
from bullmq import Queue, Worker


async def process(job: Any, _token: str) -> None:
    await body.job(job.data)


async def work() -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    worker = Worker("bench", process, {"connection": body.URL, "concurrency": body.SLOTS})
    await stop.wait()
    await worker.close()


async def produce() -> None:
    queue = Queue("bench", {"connection": body.URL})
    await queue.getJobCounts()
    jobs = [body.payload(n) for n in range(body.wanted())]
    with body.Clock():
        for start in range(0, len(jobs), body.CHUNK):
            await queue.addBulk(
                [{"name": "job", "data": data} for data in jobs[start : start + body.CHUNK]]
            )
    await queue.close()


if __name__ == "__main__":
    asyncio.run(work() if sys.argv[1] == "work" else produce())
