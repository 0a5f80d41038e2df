"""arq: `arq arq_program.WorkerSettings`, single enqueues (it has no bulk one)."""

from __future__ import annotations

import asyncio
from typing import Any

import body
from arq import create_pool
from arq.connections import RedisSettings


async def job(_ctx: dict[str, Any], argument: dict[str, Any]) -> None:
    await body.job(argument)


class WorkerSettings:
    functions = (job,)
    redis_settings = RedisSettings.from_dsn(body.URL)
    max_jobs = body.SLOTS
    # At its default of 0.5 s the polling alone allows 320 jobs a second.
    poll_delay = 0.05


async def produce() -> None:
    redis = await create_pool(WorkerSettings.redis_settings)
    jobs = [body.payload(n) for n in range(body.wanted())]
    await body.produce_async(lambda argument: redis.enqueue_job("job", argument), jobs)
    await redis.aclose()


if __name__ == "__main__":
    asyncio.run(produce())
