"""Terms of leadership: what one leaves undone, the next one does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from llmqueue_operator.controller import Controller
from llmqueue_operator.errors import NotLeading
from llmqueue_operator.groups import Assembly
from llmqueue_operator.kube.kinds import LLMQUEUES, Kind
from llmqueue_operator.metrics import Metrics
from llmqueue_operator.reconciler import TICK_SECONDS
from llmqueue_operator.settings import OperatorSettings
from support.clusterobjects import llmqueue

BUDGET = "default/q"


class Listing:
    """Stands for `kube.Cluster`: one LLMQueue, nothing else."""

    watched = "default"

    async def all_of(self, kind: Kind) -> AsyncIterator[dict[str, Any]]:
        if kind is LLMQUEUES:
            yield llmqueue()


async def test_a_look_that_a_lost_lease_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S50: a silent Redis holds a look up while the API server is away; once both are back, the
    budget is looked at again."""
    settings = OperatorSettings(
        namespace="default", pod="p", worker_image="w", connections_dir=tmp_path
    )
    controller = Controller(settings, Listing(), Metrics())  # type: ignore[arg-type]
    looks: asyncio.Queue[list[str]] = asyncio.Queue()

    async def look(groups: Any, _horizon: Any) -> dict[str, Any]:
        looks.put_nowait([group.name for group in groups])
        await asyncio.sleep(3600)
        return {}

    monkeypatch.setattr(controller._lookout, "look", look)
    leadership = controller.leadership
    terms = asyncio.create_task(controller._terms())
    try:
        async with asyncio.timeout(20):
            for _ in range(3):
                leadership.lost.clear()
                leadership.leading.set()
                assert await looks.get() == [BUDGET]
                leadership.leading.clear()
                leadership.lost.set()
                while controller._working:  # until the term has ended
                    await asyncio.sleep(0.01)
    finally:
        terms.cancel()
        await asyncio.gather(terms, return_exceptions=True)


async def test_a_renewal_that_is_late_is_no_lost_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The term goes on: a budget that was refused in between must not be forgotten until the next
    event."""
    settings = OperatorSettings(
        namespace="default", pod="p", worker_image="w", connections_dir=tmp_path
    )
    controller = Controller(settings, Listing(), Metrics())  # type: ignore[arg-type]
    controller._queue.add(BUDGET)
    assert await controller._queue.take() == [BUDGET]

    async def reconcile(*_: Any) -> float:
        raise NotLeading("the Lease could not be renewed in time")

    monkeypatch.setattr(controller._reconciler, "reconcile", reconcile)
    loop = asyncio.get_running_loop()
    began = loop.time()
    await controller._one(BUDGET, Assembly(None, {}), None)
    async with asyncio.timeout(10):
        assert await controller._queue.take() == [BUDGET]
    assert 0.5 * TICK_SECONDS < loop.time() - began < 3 * TICK_SECONDS
    assert controller._metrics.reconciles["refused"] == 1
