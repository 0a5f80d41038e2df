"""What the store says of many budgets at once: one pipeline for each Redis and tick."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from llmqueue.config import BudgetConfig, QueueConfig
from llmqueue.days import listed_month
from llmqueue.errors import LlmqueueError, QueueFull, StoreError, StoreUnavailable
from llmqueue.store import RedisStore
from llmqueue.store.snapshots import BudgetSnapshot
from llmqueue_operator.connections import Connections
from llmqueue_operator.errors import UnusableConnection
from llmqueue_operator.groups import Group
from llmqueue_operator.planning import Condition, ConditionType, Reason

_MOST_LOOKS = 25
"""In one tick: each look does a little of the store's housekeeping."""
_CONFIGURE_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Sight:
    """A budget as the store showed it, or why it could not be seen."""

    snapshot: BudgetSnapshot | None
    error: str = ""
    away_seconds: float = 0.0
    problem: Condition | None = None
    """The connection itself is unusable: nothing is known, and waiting does not help."""


@dataclass(frozen=True, slots=True)
class Configured:
    """What was written to the store last."""

    budget: BudgetConfig
    queues: tuple[QueueConfig, ...]
    month: str
    """For which days of calendar limits are listed."""


class Lookout:
    """Reads snapshots, and writes configurations where they have changed.

    `clock` is monotonic, `wall_clock` gives Unix seconds; `check` raises NotLeading where this
    replica may not write any more.
    """

    def __init__(
        self,
        connections: Connections,
        clock: Callable[[], float],
        *,
        check: Callable[[], None],
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._connections, self._clock, self._check = connections, clock, check
        self._wall_clock = wall_clock
        self._configured: dict[str, Configured] = {}
        self._away_since: dict[str, float] = {}
        """Budget → since when it cannot be seen."""

    def forget(self, budget: str | None = None) -> None:
        """Write the configuration of this budget, or of all, anew."""
        if budget is None:
            self._configured.clear()
        else:
            self._configured.pop(budget, None)
            self._away_since.pop(budget, None)

    async def look(
        self, groups: Iterable[Group], horizon: Callable[[Group], float]
    ) -> dict[str, Sight]:
        """Budget → sight; never raises for what a store does.

        `horizon`: jobs due within so many seconds count as work.
        """
        by_connection: dict[str, list[Group]] = {}
        for group in groups:
            by_connection.setdefault(group.connection, []).append(group)
        sights: dict[str, Sight] = {}
        for found in await asyncio.gather(
            *(self._look_at(name, members, horizon) for name, members in by_connection.items())
        ):
            sights |= found
        return sights

    async def _look_at(
        self, connection: str, groups: list[Group], horizon: Callable[[Group], float]
    ) -> dict[str, Sight]:
        names = [group.name for group in groups]
        try:
            store = await self._connections.store(connection)
        except UnusableConnection as exc:
            problem = Condition(
                ConditionType.STORE_AVAILABLE, False, Reason.CONNECTION_UNUSABLE, str(exc)
            )
            return {name: self._away(name, str(exc), problem) for name in names}
        except LlmqueueError as exc:
            return {name: self._away(name, str(exc)) for name in names}
        failed = await self._configure(store, groups)
        horizons = {group.name: horizon(group) for group in groups}
        seen = await self._snapshots(
            store, {name: s for name, s in horizons.items() if name not in failed}
        )
        return {name: self._sight(name, failed.get(name) or seen[name]) for name in names}

    def _sight(self, budget: str, found: BudgetSnapshot | StoreError) -> Sight:
        if isinstance(found, StoreError):
            return self._away(budget, str(found))
        self._away_since.pop(budget, None)
        return Sight(found)

    def _away(self, budget: str, error: str, problem: Condition | None = None) -> Sight:
        now = self._clock()
        since = self._away_since.setdefault(budget, now)
        return Sight(None, error, now - since, problem)

    async def _configure(self, store: RedisStore, groups: list[Group]) -> dict[str, StoreError]:
        """Returns the budgets for which it failed."""
        changed = [
            Configured(
                group.budget,
                tuple(m.config for m in group.members),
                listed_month(group.budget.limits, at=self._wall_clock()),
            )
            for group in groups
        ]
        changed = [c for c in changed if self._configured.get(c.budget.budget) != c]
        room, failed = asyncio.Semaphore(_CONFIGURE_AT_ONCE), dict[str, StoreError]()

        async def write(wanted: Configured) -> None:
            async with room:
                if failed:  # one silence is enough to wait for
                    failed[wanted.budget.budget] = next(iter(failed.values()))
                    return
                self._check()
                try:
                    await store.configure(wanted.budget, wanted.queues)
                except StoreError as exc:
                    failed[wanted.budget.budget] = exc
                except QueueFull as exc:  # Redis is out of memory
                    failed[wanted.budget.budget] = StoreUnavailable(str(exc))
                else:
                    self._configured[wanted.budget.budget] = wanted

        await asyncio.gather(*map(write, changed))
        return failed

    async def _snapshots(
        self, store: RedisStore, horizons: Mapping[str, float]
    ) -> dict[str, BudgetSnapshot | StoreError]:
        """Once each budget's housekeeping has caught up, or had its share of this tick."""
        seen: dict[str, BudgetSnapshot | StoreError] = {}
        behind, looks = dict(horizons), 0
        while behind and looks < _MOST_LOOKS:
            seen |= await store.snapshots(behind)
            behind = {n: s for n, s in behind.items() if getattr(seen[n], "again", False)}
            looks += 1
        return seen
