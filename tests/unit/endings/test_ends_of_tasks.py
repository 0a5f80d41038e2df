"""Tasks end, also those that swallow a cancellation."""

from __future__ import annotations

import asyncio

from llmqueue.endings import end


async def sleeper(swallows: int) -> None:
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            if swallows == 0:
                raise
            swallows -= 1


async def test_tasks_end_whatever_they_swallow() -> None:
    tasks = [asyncio.create_task(sleeper(swallows)) for swallows in (0, 1, 3)]
    await asyncio.sleep(0)
    async with asyncio.timeout(5):
        await end(*tasks, again_seconds=0.01)
    assert all(task.cancelled() for task in tasks)


async def test_one_that_is_ending_is_left_to_it() -> None:
    steps: list[str] = []

    async def orderly() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.05)
            steps.append("tidied up")

    task = asyncio.create_task(orderly())
    await asyncio.sleep(0)
    await end(task)
    assert steps == ["tidied up"]


async def test_what_failed_is_over() -> None:
    async def failing() -> None:
        raise ValueError("x")

    task = asyncio.create_task(failing())
    await asyncio.sleep(0)
    await end(task)
    assert task.done()
