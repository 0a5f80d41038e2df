"""taskiq on a Redis stream: `taskiq worker taskiq_program:broker`, single enqueues."""

from __future__ import annotations

import asyncio
from typing import Any

import body
from taskiq_redis import RedisStreamBroker

broker = RedisStreamBroker(body.URL)


@broker.task(task_name="job")
async def job(argument: dict[str, Any]) -> None:
    await body.job(argument)


async def produce() -> None:
    await broker.startup()
    jobs = [body.payload(n) for n in range(body.wanted())]
    await body.produce_async(job.kiq, jobs)
    await broker.shutdown()


if __name__ == "__main__":
    asyncio.run(produce())
