"""The control loop of one queue without a machine around it."""

from __future__ import annotations

import time
from collections.abc import Callable

from llmqueue_cli.local.control import Controller
from llmqueue_cli.local.deployment import LocalGroup, LocalQueue
from llmqueue_cli.local.journal import Journal
from llmqueue_cli.local.processes import WorkerKind
from llmqueue_operator.planning import ScalingSpec
from support.storebench import QUEUE, StoreBench


def controller(bench: StoreBench, *, wall_clock: Callable[[], float] = time.time) -> Controller:
    queue = LocalQueue(bench.config, ScalingSpec(), WorkerKind(QUEUE, {}, 1.0))
    return Controller(
        bench.store,
        LocalGroup(bench.budget, (queue,)),
        Journal(as_json=False, write=lambda line: None),
        on_exit=lambda end: None,
        wall_clock=wall_clock,
    )
