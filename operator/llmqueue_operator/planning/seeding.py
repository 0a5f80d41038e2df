"""Memory after a restart, a change of leader or a re-apply: nothing may move because of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from llmqueue_operator.planning.types import Memory, QueueInput, QueueMemory, Remembered


def seed(
    queues: Sequence[QueueInput],
    remembered: Mapping[str, Remembered],
    *,
    epoch: str | None,
    now: float,
) -> Memory:
    """Memory from what the statuses kept (queue id → Remembered) and the Deployments ask for.

    `epoch` is the store's, as last known; None = never seen, so a reset can't be told.
    """
    memories = {q.queue: seed_queue(q, remembered.get(q.queue, Remembered()), now) for q in queues}
    return Memory(epoch=epoch, queues=memories)


def seed_queue(queue: QueueInput, remembered: Remembered, now: float) -> QueueMemory:
    """One queue: the last target, held for a window of its own; W as it was.

    Without a status the replicas that the runner asks for are the target.
    """
    target = queue.replicas if remembered.desired is None else remembered.desired
    return QueueMemory(target=target, wishes=((now, target),), slot_seconds=remembered.slot_seconds)
