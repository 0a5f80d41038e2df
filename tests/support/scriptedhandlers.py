"""A whole worker with handlers on the virtual clock; only its calls to the provider are scripted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from llmqueue.app import App, Context
from llmqueue.outcome import Outcome, Usage
from llmqueue.providers.registry import get_provider
from llmqueue.settings import WorkerSettings
from llmqueue.states import OutcomeClass, ProviderType
from llmqueue.store.port import Settlement
from llmqueue_worker.attempt import Attempt
from llmqueue_worker.booking import Bookkeeper
from llmqueue_worker.call import ProviderCalls
from llmqueue_worker.dispatch import JobRunner
from llmqueue_worker.handlers.book import CallBook
from llmqueue_worker.handlers.runner import HandlerRunner
from llmqueue_worker.inflight import InFlight
from llmqueue_worker.metrics import Stats
from llmqueue_worker.runner import Runner
from support.scriptedrunner import Bench, start
from support.virtualtime import run_virtually


def answer(text: str) -> Outcome:
    body = json.dumps({"text": text}).encode()
    return Outcome(OutcomeClass.SUCCESS, status=200, usage=Usage(9, 4), result=body)


class ScriptedCalls(ProviderCalls):
    """Each call connects, asks, and takes `seconds`; its text chooses the outcome."""

    def __init__(self) -> None:
        self.provider = get_provider(ProviderType.OPENAI)
        self.seconds, self.connect_seconds = 1.0, 0.0
        self.outcomes: dict[str, Outcome | Exception] = {}
        self.made: list[tuple[str, int | str, float]] = []
        """(text, name, its time-out)"""
        self.closed: list[str] = []

    async def call(
        self,
        payload: Mapping[str, Any],
        attempt: Attempt,
        *,
        name: int | str,
        max_output_tokens: int,
        timeout_seconds: float,
    ) -> Outcome:
        text = payload["messages"][0]["content"]
        try:
            await asyncio.sleep(self.connect_seconds)
            await attempt.send()
            self.made.append((text, name, timeout_seconds))
            if self.seconds >= timeout_seconds:
                await asyncio.sleep(timeout_seconds)
                return Outcome(OutcomeClass.UNKNOWN, message="no complete answer: TimeoutError")
            await asyncio.sleep(self.seconds)
        except asyncio.CancelledError:
            self.closed.append(text)
            raise
        found = self.outcomes.get(text) or answer(text)
        if isinstance(found, Exception):
            raise found
        return found

    async def close(self) -> None:
        pass


class HandlerBench(Bench):
    """`app` holds the handlers; their calls say what they are with their text."""

    def __init__(self, **values: Any) -> None:
        self.app: App | None = App()
        self.calls = ScriptedCalls()
        super().__init__(**values)

    def runner_of(self, config: WorkerSettings) -> Runner:
        book = CallBook(self.store, config.queue, Stats(InFlight(config.slots)))
        self.handlers = HandlerRunner(config, self.app, self.calls, book, Bookkeeper())
        return JobRunner(self.runner, self.handlers)

    def run(self, handler: str = "work", **args: Any) -> str:
        """Enqueue a job and see that the worker runs."""
        fields = args.pop("fields", {})
        (job,) = self.store.add(1, handler=handler, payload=json.dumps(args).encode(), **fields)
        if self.task is None:
            start(self)
        return job

    @property
    def texts(self) -> list[str]:
        """Of all calls that left."""
        return [text for text, _, _ in self.calls.made]

    def outcome(self) -> Outcome:
        """Of the one settled run."""
        return self.settlement().outcome

    def settlement(self) -> Settlement:
        (settled,) = self.store.settled
        return settled


async def ask(ctx: Any, text: str, **parameters: Any) -> str:
    messages = [{"role": "user", "content": text}]
    found = await ctx.llm.chat(model="gpt-4o", messages=messages, **parameters)
    return str(found["text"])


@asynccontextmanager
async def handling(**values: Any) -> AsyncIterator[HandlerBench]:
    bench = HandlerBench(**values)
    yield bench
    if bench.task is not None and not bench.task.done():
        bench.task.cancel()
        with suppress(asyncio.CancelledError):
            await bench.task


Scenario = Callable[[HandlerBench], Awaitable[None]]


def play(scenario: Scenario, **values: Any) -> None:
    async def all_of_it() -> None:
        async with handling(**values) as bench:
            await scenario(bench)

    run_virtually(all_of_it())


def works(bench: HandlerBench, function: Callable[[Context], Awaitable[Any]]) -> str:
    """Run a function as the handler of one job."""
    assert bench.app is not None

    async def work(ctx: Context) -> Any:
        return await function(ctx)

    bench.app.handler("work")(work)
    return bench.run("work")
