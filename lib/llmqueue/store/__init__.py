"""The durable queue: port in port.py, the one adapter in redis.py."""

from __future__ import annotations

from llmqueue.store.address import carries_credentials
from llmqueue.store.redis import RedisStore


async def connect(url: str) -> RedisStore:
    """Open the store at a Redis URL; address.py has its forms.

    Raises UsageError (not a URL), StoreUnavailable, StoreMisconfigured.
    """
    store = RedisStore(url)
    try:
        await store.check()
    except BaseException:
        await store.close()
        raise
    return store


__all__ = ["RedisStore", "carries_credentials", "connect"]
