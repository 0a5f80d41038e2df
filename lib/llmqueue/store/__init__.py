"""The durable queue: port in port.py, the one adapter in redis.py."""

from __future__ import annotations

from collections.abc import Callable

from llmqueue.store.address import carries_credentials
from llmqueue.store.redis import RedisStore


def _pass_over(_warning: str) -> None:
    """Of commands that come and go: `up`, workers and operator say it."""


async def connect(url: str, *, warn: Callable[[str], None] = _pass_over) -> RedisStore:
    """Open the store at a Redis URL; address.py has its forms.

    `warn` is told what endangers or slows it.

    Raises UsageError (not a URL), StoreUnavailable, StoreMisconfigured.
    """
    store = RedisStore(url)
    try:
        for warning in await store.check():
            warn(warning)
    except BaseException:
        await store.close()
        raise
    return store


__all__ = ["RedisStore", "carries_credentials", "connect"]
