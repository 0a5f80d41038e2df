"""What local mode runs: LLMQueue resources joined with keys, grouped by budget."""

from __future__ import annotations

from dataclasses import dataclass

from llmqueue.config import BudgetConfig, QueueConfig
from llmqueue_cli.local.processes import WorkerKind
from llmqueue_operator.planning import ScalingSpec


@dataclass(frozen=True, slots=True)
class LocalQueue:
    """One LLMQueue on this machine. `credential` = fingerprint of its key, "" for none."""

    config: QueueConfig
    scaling: ScalingSpec
    workers: WorkerKind
    credential: str = ""

    @property
    def queue(self) -> str:
        return self.config.queue


@dataclass(frozen=True, slots=True)
class LocalGroup:
    """All LLMQueues on one budget."""

    budget: BudgetConfig
    queues: tuple[LocalQueue, ...]
