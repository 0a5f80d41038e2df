"""Queues that the store still knows though their LLMQueue is gone: enqueue must refuse them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import structlog

from llmqueue.errors import LlmqueueError
from llmqueue_operator.connections import Connections
from llmqueue_operator.world import World

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Retired:
    """`complete` False: a store could not be asked."""

    removed: frozenset[str]
    complete: bool


async def retire(
    connections: Connections, world: World, *, watched: str | None, keys: Iterable[str] | None
) -> Retired:
    """Remove what is gone from every store's registry; jobs are kept.

    `keys` None looks at all of the watched namespace, which asks for a world that has seen a full
    list.
    """
    asked = None if keys is None else set(keys)
    removed: set[str] = set()
    complete = True
    for name in connections.names():
        try:
            store = await connections.store(name)
            for key in list(await store.registry()):  # a removal changes it
                # Asked right before each removal: a namesake may have come meanwhile.
                if _concerns(key, asked, watched) and not _serves(world, key, name):
                    await store.remove_queue(key)
                    removed.add(key)
                    _log.info("queue-retired", queue=key, connection=name)
        except LlmqueueError as exc:
            _log.warning("queues-not-retired", connection=name, error=str(exc))
            complete = False
    return Retired(frozenset(removed), complete)


def _concerns(key: str, asked: set[str] | None, watched: str | None) -> bool:
    if asked is not None:
        return key in asked
    return watched is None or key.startswith(f"{watched}/")


def _serves(world: World, key: str, connection: str) -> bool:
    """Whether an LLMQueue of that name is there and uses this connection.

    One that cannot be read keeps what it had.
    """
    view = world.queues.get(key)
    if view is None or view.deleting:
        return False
    return view.resource is None or view.resource.spec.redis.connection == connection
