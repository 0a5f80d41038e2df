"""What the store says of many budgets at once: one pipeline for each Redis and tick."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeGuard

from llmqueue.config import BudgetConfig, QueueConfig
from llmqueue.days import listed_month
from llmqueue.errors import LlmqueueError, QueueFull, StoreError, StoreRefused, StoreUnavailable
from llmqueue.store import RedisStore
from llmqueue.store.snapshots import BudgetSnapshot
from llmqueue_operator.connections import Connections
from llmqueue_operator.errors import UnusableConnection
from llmqueue_operator.groups import Group
from llmqueue_operator.planning import Condition, ConditionType, Reason

_MOST_LOOKS = 25
"""In one tick: each look does a little of the store's housekeeping."""
_CONFIGURE_AT_ONCE = 16
METER_SECONDS = 10.0
"""Between two looks at what a budget's queues did, ever: more often than anybody scrapes."""


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


def _tell_nobody(_connection: str, _error: LlmqueueError | None) -> None:
    """Where nobody watches connections."""


class Lookout:
    """Reads snapshots, and writes configurations where they have changed.

    `clock` is monotonic, `wall_clock` gives Unix seconds; `check` raises NotLeading where this
    replica may not write any more; `tell` hears of each connection whether its last look failed.
    """

    def __init__(
        self,
        connections: Connections,
        clock: Callable[[], float],
        *,
        check: Callable[[], None],
        wall_clock: Callable[[], float] = time.time,
        tell: Callable[[str, LlmqueueError | None], None] = _tell_nobody,
    ) -> None:
        self._connections, self._clock, self._check = connections, clock, check
        self._wall_clock, self._tell = wall_clock, tell
        self._configured: dict[str, Configured] = {}
        self._away_since: dict[str, float] = {}
        """Budget → since when it cannot be seen."""
        self._metered_at: dict[str, float] = {}
        self._failing: dict[str, tuple[str, StoreError]] = {}
        """Budget → connection that is to blame: budgets are looked at in turn, and of a cluster a
        part may be away."""

    def forget(self, budget: str | None = None) -> None:
        """Write the configuration of this budget, or of all, anew."""
        if budget is None:
            self._configured.clear()
            self._metered_at.clear()
            self._failing.clear()
        else:
            self._configured.pop(budget, None)
            self._away_since.pop(budget, None)
            self._metered_at.pop(budget, None)
            self._failing.pop(budget, None)

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
            # Not told: an LLMQueue may name what no settings have, and StoreWatch sees the rest.
            problem = Condition(
                ConditionType.STORE_AVAILABLE, False, Reason.CONNECTION_UNUSABLE, str(exc)
            )
            return {name: self._away(name, str(exc), problem) for name in names}
        except LlmqueueError as exc:
            self._tell(connection, exc)
            return {name: self._away(name, str(exc)) for name in names}
        failed = await self._configure(store, groups)
        horizons = {group.name: horizon(group) for group in groups}
        seen = await self._snapshots(
            store, {name: s for name, s in horizons.items() if name not in failed}
        )
        found = {name: failed.get(name) or seen[name] for name in names}
        self._tell(connection, self._failure_of(connection, found))
        return {name: self._sight(name, each) for name, each in found.items()}

    def _failure_of(
        self, connection: str, found: Mapping[str, BudgetSnapshot | StoreError]
    ) -> StoreError | None:
        """What stops any of its budgets, also one that was not looked at now."""
        for name, each in found.items():
            if _is_of_the_connection(each):
                self._failing[name] = (connection, each)
            else:
                self._failing.pop(name, None)
        return next((e for name, e in self._failing.values() if name == connection), None)

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
        behind, looks, now = dict(horizons), 0, self._clock()
        never = now - METER_SECONDS
        metered = {n for n in behind if now - self._metered_at.get(n, never) >= METER_SECONDS}
        while behind and looks < _MOST_LOOKS:
            seen |= await store.snapshots(behind, meters=metered)
            behind = {n: s for n, s in behind.items() if getattr(seen[n], "again", False)}
            looks += 1
        self._metered_at |= {n: now for n in metered if isinstance(seen[n], BudgetSnapshot)}
        return seen


def _is_of_the_connection(found: BudgetSnapshot | StoreError) -> TypeGuard[StoreError]:
    """Not what one budget's keys are to blame for."""
    return isinstance(found, StoreUnavailable | StoreRefused)
