"""SAQ: `saq saq_program.settings`, single enqueues (its bulk calls wait for results)."""

from __future__ import annotations

import asyncio
from typing import Any

import body
from saq import Queue

queue = Queue.from_url(body.URL)


async def job(_ctx: dict[str, Any], *, argument: dict[str, Any]) -> None:
    await body.job(argument)


settings = {"queue": queue, "functions": [job], "concurrency": body.SLOTS}


async def produce() -> None:
    await queue.connect()
    jobs = [body.payload(n) for n in range(body.wanted())]
    await body.produce_async(lambda argument: queue.enqueue("job", argument=argument), jobs)
    await queue.disconnect()


if __name__ == "__main__":
    asyncio.run(produce())
