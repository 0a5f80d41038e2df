"""Calls the Lua library on one Redis and knows which budget a queue belongs to."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from redis.exceptions import OutOfMemoryError, ResponseError

from llmqueue.config import RegistryEntry
from llmqueue.errors import StoreError, StoreUnavailable, UnknownJob, UnknownQueue
from llmqueue.store import codec, durability, keys
from llmqueue.store.address import parse_address
from llmqueue.store.connection import translated
from llmqueue.store.scripts import library, script_when_full
from llmqueue.store.topology import Topology, open_topology

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
        address = parse_address(url)
        self.topology: Topology = open_topology(address)
        self._waiting = open_topology(
            address, timeout_seconds=MAX_BLOCK_SECONDS + BLOCK_MARGIN_SECONDS
        )
        self.client, self.blocking = self.topology.client, self._waiting.client
        self._min_replicas = address.min_replicas
        self._entries: dict[str, RegistryEntry] = {}
        self._budgets: dict[str, str] = {}
        self._strict: set[str] = set()
        """Budgets with a Strict queue."""
        self._read_at = -REGISTRY_SECONDS

    def subscriber(self) -> Any:
        """A client of its own for pub/sub: it waits for ever."""
        return self.topology.listener()

    async def run(self, name: str, budget: str, *args: Argument) -> Any:
        """Call a function of the library on a budget's keys.

        Returns once a Strict budget's step is durable. Raises StoreUnavailable (it may have run),
        StoreMisconfigured, QueueFull (out of memory).
        """
        key = keys.prefix(budget) + "cfg"
        strict = budget in self._strict and name not in durability.NOT_RELIED_ON
        call = ("FCALL", library().function(name), 1, key, *args)
        try:
            with translated():
                try:
                    return await self._ask(key, call, strict=strict)
                except ResponseError as exc:
                    if "Function not found" not in str(exc):
                        raise
                return await self._load_and_call(name, key, call, strict=strict)
        except StoreError:
            await self.topology.find_anew()
            raise

    async def write(self, key: str, *command: Argument, strict: bool) -> None:
        """A plain command, durable before this returns where `strict`."""
        with translated():
            await self._ask(key, (*command[:1], key, *command[1:]), strict=strict)

    async def _ask(self, key: str, command: Sequence[Argument], *, strict: bool) -> Any:
        waits = durability.request(self._min_replicas) if strict else []
        answer, *acknowledged = await self.topology.ask([(key, each) for each in (command, *waits)])
        if isinstance(answer, Exception):
            raise answer
        if acknowledged:
            durability.verify(acknowledged[-1], self._min_replicas)
        return answer

    async def _load_and_call(
        self, name: str, key: str, call: Sequence[Argument], *, strict: bool
    ) -> Any:
        try:
            await self._ask(key, ("FUNCTION LOAD", "REPLACE", library().source), strict=False)
        except OutOfMemoryError:
            script = script_when_full(name)
            if script is None:
                raise
            call = ("EVAL", script, *call[2:])
        return await self._ask(key, call, strict=strict)

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
                await self.topology.find_anew()
                return answers | dict.fromkeys(budgets[start:], exc)
            if any(isinstance(answer, StoreUnavailable) for answer in found):
                await self.topology.find_anew()
            answers |= zip(part, found, strict=True)
        return answers

    async def _pipeline(self, name: str, calls: Mapping[str, Sequence[Argument]]) -> list[Any]:
        """Answers in order; a refused call's StoreError stands for its answer."""
        function = library().function(name)
        found = {budget: keys.prefix(budget) + "cfg" for budget in calls}
        with translated():
            answers = await self.topology.ask(
                [(found[b], ("FCALL", function, 1, found[b], *args)) for b, args in calls.items()]
            )
        return [
            await self._redeem(name, budget, args, answer)
            for (budget, args), answer in zip(calls.items(), answers, strict=True)
        ]

    async def _redeem(self, name: str, budget: str, args: Sequence[Argument], answer: Any) -> Any:
        """An answer, or what a single call makes of an error: it loads a missing library."""
        if not isinstance(answer, Exception):
            return answer
        try:
            if not isinstance(answer, ResponseError):  # its node is away: once is enough to wait
                with translated():
                    raise answer
            return await self.run(name, budget, *args)
        except StoreError as exc:
            return exc

    def remember(self, entries: Iterable[RegistryEntry]) -> None:
        """What was just written to the registry: no need to read all of it again."""
        for entry in entries:
            self._entries[entry.config.queue] = entry
            self._budgets[entry.code] = entry.config.budget
        self._find_strict()

    def expect_strict(self, budget: str) -> None:
        """Of a budget that is about to be written: its first step already waits."""
        self._strict.add(budget)

    async def any_strict(self) -> bool:
        """Whether the registry has a Strict queue."""
        await self.entries()
        return bool(self._strict)

    def _find_strict(self) -> None:
        configs = [entry.config for entry in self._entries.values()]
        self._strict = {each.budget for each in configs if each.durability == durability.STRICT}

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
            self._find_strict()
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

    async def budget_of_lease(self, queue: str, job_id: str) -> str:
        """Where a claimed job is: by its id, so that what runs comes to its end though its queue
        is in the registry no more. A store that was reset knows no such id: there by its queue."""
        try:
            return await self.budget_of_job(job_id)
        except UnknownJob:
            return await self.budget(queue)

    async def close(self) -> None:
        await self.topology.close()
        await self._waiting.close()
