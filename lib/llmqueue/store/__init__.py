"""The durable queue: port in port.py, the one adapter in redis.py."""

from __future__ import annotations

from llmqueue.store.redis import RedisStore


async def connect(url: str) -> RedisStore:
    """Open the store at a Redis URL (redis://, rediss://, unix://).

    Raises UsageError (not a URL), StoreUnavailable, StoreMisconfigured.
    """
    store = RedisStore(url)
    try:
        await store.check()
    except BaseException:
        await store.close()
        raise
    return store


__all__ = ["RedisStore", "connect"]
