"""The programs of docs/how-to/producers.md, run as they stand."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from llmqueue.config import BudgetConfig, QueueConfig
from llmqueue.states import ProviderType
from llmqueue.store import RedisStore
from support.storebench import UNLIMITED, StoreBench

PAGE = Path(__file__).parents[3] / "docs/how-to/producers.md"
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
QUEUE = "default/summaries"
ANSWER = json.dumps({"choices": [{"message": {"content": "Hello!"}}]}).encode()


@pytest.fixture
async def worker(valkey_url: str) -> AsyncIterator[StoreBench]:
    """Answers whatever is asked."""
    bench = StoreBench(
        RedisStore(valkey_url),
        QUEUE,
        BudgetConfig(QUEUE, UNLIMITED),
        QueueConfig(QUEUE, QUEUE, ProviderType.OPENAI),
    )
    await bench.redis.flushall()
    await bench.configure()

    stopping = asyncio.Event()

    async def work() -> None:
        # Not ended by a cancellation: redis-py may swallow one.
        while not stopping.is_set():
            for grant in (await bench.claim(32)).grants:
                await bench.send(grant)
                await bench.settle(grant, result=ANSWER)
            await asyncio.sleep(0.02)

    working = asyncio.create_task(work())
    yield bench
    stopping.set()
    await working
    await bench.store.close()


@pytest.mark.parametrize(
    ("program", "words"),
    [(0, "Hello!"), (1, "'content': 'Hello!'"), (2, "succeeded None"), (3, "succeeded 100 0")],
    ids=["asynchronous", "synchronous", "events", "batch"],
)
async def test_a_program_of_the_page_runs(
    worker: StoreBench, valkey_url: str, program: int, words: str
) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-W",
        "error",
        "-c",
        PROGRAMS[program],
        env={**os.environ, "LLMQUEUE_REDIS_URL": valkey_url},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    assert words in out.decode()
    assert err == b""


def test_every_program_of_the_page_is_tried() -> None:
    assert len(PROGRAMS) == 4
