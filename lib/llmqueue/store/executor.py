"""Calls the Lua library on one Redis and knows which budget a queue belongs to."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from redis.exceptions import OutOfMemoryError, ResponseError

from llmqueue.config import RegistryEntry
from llmqueue.errors import StoreError, UnknownJob, UnknownQueue
from llmqueue.store import codec, keys
from llmqueue.store.connection import open_client, translated
from llmqueue.store.scripts import library, script_when_full

REGISTRY_SECONDS = 5.0
"""How long a copy of the registry is trusted; unknown names are looked up at once."""
BLOCK_MARGIN_SECONDS = 5.0
MAX_BLOCK_SECONDS = 10.0
PIPELINE_CALLS = 100
"""Calls in one pipeline: other clients get their turn between two."""

Argument = str | bytes | int | float


class Executor:
    """Connection, library and a short-lived copy of the registry."""

    # `Any`: what redis-py answers is typed by options it cannot know, and differs by its version.
    client: Any
    blocking: Any

    def __init__(self, url: str) -> None:
        self.client = open_client(url)
        self.blocking = open_client(url, timeout_seconds=MAX_BLOCK_SECONDS + BLOCK_MARGIN_SECONDS)
        self._url = url
        self._entries: dict[str, RegistryEntry] = {}
        self._budgets: dict[str, str] = {}
        self._read_at = -REGISTRY_SECONDS

    def subscriber(self) -> Any:
        """A client of its own for pub/sub: it waits for ever."""
        return open_client(self._url, timeout_seconds=None)

    async def run(self, name: str, budget: str, *args: Argument) -> Any:
        """Call a function of the library on a budget's keys.

        Raises StoreUnavailable (it may have run), StoreMisconfigured, QueueFull (out of memory).
        """
        function = library().function(name)
        key = keys.prefix(budget) + "cfg"
        try:
            with translated():
                try:
                    return await self.client.fcall(function, 1, key, *args)
                except ResponseError as exc:
                    if "Function not found" not in str(exc):
                        raise
                return await self._load_and_call(name, key, args)
        except StoreError:
            await self.client.connection_pool.disconnect(inuse_connections=False)
            raise

    async def _load_and_call(self, name: str, key: str, args: Sequence[Argument]) -> Any:
        try:
            await self.client.function_load(library().source, replace=True)
        except OutOfMemoryError:
            script = script_when_full(name)
            if script is None:
                raise
            return await self.client.eval(script, 1, key, *args)
        return await self.client.fcall(library().function(name), 1, key, *args)

    async def run_many(self, name: str, calls: Mapping[str, Sequence[Argument]]) -> dict[str, Any]:
        """One function on many budgets (budget → arguments), in pipelines.

        Returns budget → answer, or the StoreError in its place.
        """
        answers: dict[str, Any] = {}
        budgets = list(calls)
        for start in range(0, len(budgets), PIPELINE_CALLS):
            part = budgets[start : start + PIPELINE_CALLS]
            try:
                found = await self._pipeline(name, {budget: calls[budget] for budget in part})
            except StoreError as exc:
                await self.client.connection_pool.disconnect(inuse_connections=False)
                return answers | dict.fromkeys(budgets[start:], exc)
            answers |= zip(part, found, strict=True)
        return answers

    async def _pipeline(self, name: str, calls: Mapping[str, Sequence[Argument]]) -> list[Any]:
        """Answers in order; a refused call's StoreError stands for its answer."""
        function, pipeline = library().function(name), self.client.pipeline(transaction=False)
        for budget, args in calls.items():
            pipeline.fcall(function, 1, keys.prefix(budget) + "cfg", *args)
        with translated():
            answers = await pipeline.execute(raise_on_error=False)
        return [
            await self._redeem(name, budget, args, answer)
            for (budget, args), answer in zip(calls.items(), answers, strict=True)
        ]

    async def _redeem(self, name: str, budget: str, args: Sequence[Argument], answer: Any) -> Any:
        """An answer, or what a single call makes of an error: it loads a missing library."""
        if not isinstance(answer, ResponseError):
            return answer
        try:
            return await self.run(name, budget, *args)
        except StoreError as exc:
            return exc

    def remember(self, entries: Iterable[RegistryEntry]) -> None:
        """What was just written to the registry: no need to read all of it again."""
        for entry in entries:
            self._entries[entry.config.queue] = entry
            self._budgets[entry.code] = entry.config.budget

    def drop(self, queue: str) -> None:
        """What was just taken out of the registry."""
        self._entries.pop(queue, None)

    async def entries(self, *, fresh: bool = False) -> Mapping[str, RegistryEntry]:
        """The registry, at most REGISTRY_SECONDS old."""
        if fresh or time.monotonic() - self._read_at > REGISTRY_SECONDS:
            with translated():
                raw: dict[bytes, bytes] = await self.client.hgetall(keys.REGISTRY)
            self._entries = {
                name.decode()[2:]: codec.entry_from_json(value)
                for name, value in raw.items()
                if name.startswith(b"q:")
            }
            self._budgets = {
                name.decode()[2:]: value.decode()
                for name, value in raw.items()
                if name.startswith(b"c:")
            }
            self._read_at = time.monotonic()
        return self._entries

    async def entry(self, queue: str) -> RegistryEntry:
        """A queue's entry. Raises UnknownQueue."""
        found = (await self.entries()).get(queue) or (await self.entries(fresh=True)).get(queue)
        if found is None:
            raise UnknownQueue(
                f"no queue {queue!r}: apply an LLMQueue of that name"
                " (operator), or name its file in `llmqueue up -f`"
            )
        return found

    async def budget(self, queue: str) -> str:
        return (await self.entry(queue)).config.budget

    async def plan(self, queue: str) -> Mapping[str, str]:
        """What the planner wrote last of a queue."""
        key = f"{keys.prefix(await self.budget(queue))}plan:{queue}"
        with translated():
            raw: dict[bytes, bytes] = await self.client.hgetall(key)
        return {name.decode(): value.decode() for name, value in raw.items()}

    def known_budget(self, queue: str) -> str | None:
        """Budget of a queue from the copy at hand, however old."""
        found = self._entries.get(queue)
        return found.config.budget if found else None

    async def budget_of_job(self, job_id: str) -> str:
        """The budget that a job's id begins with. Raises UnknownJob."""
        code = job_id[: keys.CODE_LENGTH]
        await self.entries()
        if code not in self._budgets:
            await self.entries(fresh=True)
        budget = self._budgets.get(code)
        if budget is None:
            raise UnknownJob(f"no job {job_id!r}")
        return budget

    async def close(self) -> None:
        await self.client.aclose()
        await self.blocking.aclose()
