"""What is wrong with the Redis connections of the settings, those that no LLMQueue uses too."""

from __future__ import annotations

import asyncio

import structlog

from llmqueue.errors import LlmqueueError
from llmqueue_operator.connections import Connections
from llmqueue_operator.metrics import Metrics

CHECK_SECONDS = 30.0
"""Of settings, which change seldom; budgets are looked at all the time."""

_log = structlog.get_logger()


class StoreWatch:
    """Checks every connection now and then: what a server was set to after we had connected counts
    as well."""

    def __init__(self, connections: Connections, metrics: Metrics) -> None:
        self._connections, self._metrics = connections, metrics

    async def run(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(CHECK_SECONDS)

    async def look(self) -> None:
        """Side by side: one that is silent keeps no other waiting."""
        names = self._connections.names()
        self._metrics.keep_stores(names)
        await asyncio.gather(*map(self._check, names))

    async def _check(self, name: str) -> None:
        try:
            store = await self._connections.store(name)
            warnings = await store.check()
        except LlmqueueError as exc:
            self._metrics.checked_store(name, exc)
        except Exception:  # an edge: nobody would look at any connection again
            _log.exception("store-not-checked", connection=name)
        else:
            self._metrics.checked_store(name, None, warnings=len(warnings))
