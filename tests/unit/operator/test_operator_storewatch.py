"""Connections of the settings, used or not."""

from __future__ import annotations

from typing import Any

import structlog.testing

from llmqueue.errors import StoreMisconfigured, StoreUnavailable
from llmqueue_operator.errors import UnusableConnection
from llmqueue_operator.metrics import Metrics, StoreProblem
from llmqueue_operator.storewatch import StoreWatch


class Store:
    """Stands for an open store; `found` are its warnings, or what a check raises."""

    def __init__(self, found: Any) -> None:
        self.found = found

    async def check(self) -> list[str]:
        if isinstance(self.found, Exception):
            raise self.found
        return list(self.found)


class Connections:
    def __init__(self, **stores: Any) -> None:
        self.stores = stores

    def names(self) -> list[str]:
        return list(self.stores)

    async def store(self, name: str) -> Store:
        if isinstance(self.stores[name], UnusableConnection):
            raise self.stores[name]
        return Store(self.stores[name])


async def test_all_are_looked_at_and_one_keeps_no_other_waiting() -> None:
    connections = Connections(
        fine=[],
        warned=["no append-only file", "slow"],
        away=StoreUnavailable("x"),
        evicts=StoreMisconfigured("x"),
        no_url=UnusableConnection("x"),
        faulty=ZeroDivisionError(),
    )
    metrics = Metrics()
    watch = StoreWatch(connections, metrics)  # type: ignore[arg-type]
    with structlog.testing.capture_logs() as logs:
        await watch.look()
    found = metrics.stores()
    assert {name: store.problem for name, store in found.items()} == {
        "fine": None,
        "warned": None,
        "away": StoreProblem.UNREACHABLE,
        "evicts": StoreProblem.MISCONFIGURED,
        "no_url": StoreProblem.MISCONFIGURED,
    }
    assert found["warned"].warnings == 2
    assert [log["connection"] for log in logs] == ["faulty"]
    del connections.stores["away"]
    connections.stores["evicts"] = []
    await watch.look()
    assert metrics.stores()["evicts"].problem is None
    assert "away" not in metrics.stores()
