"""Connections, and Redis errors as errors of ours: one path, one outcome for each kind."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from urllib.parse import urlsplit

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    RedisError,
    ResponseError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from llmqueue.errors import QueueFull, StoreMisconfigured, StoreUnavailable, UsageError

_NOT_NOW = (
    "READONLY",
    "LOADING",
    "MASTERDOWN",
    "CLUSTERDOWN",
    "TRYAGAIN",
    "NOREPLICAS",
    "MISCONF",
    "BUSY",
    "UNKILLABLE",
    "UNBLOCKED",
    "NOMASTERLINK",
)
_OUT_OF_MEMORY = "OOM"
COMMAND_TIMEOUT_SECONDS = 5.0
CONNECT_TIMEOUT_SECONDS = 3.0


def redacted(url: str) -> str:
    """The URL without its password, for people to read."""
    parts = urlsplit(url)
    if "@" not in parts.netloc:
        return url
    return parts._replace(netloc="***@" + parts.netloc.rsplit("@", 1)[1]).geturl()


def open_client(url: str, *, timeout_seconds: float | None = COMMAND_TIMEOUT_SECONDS) -> Redis:
    """A client that never repeats a command by itself: a script may have run, only we know
    which may run twice.

    Raises UsageError for a URL that is none.
    """
    # A unix socket has no keep-alive, and redis-py refuses the option for it.
    tcp_only = {} if url.startswith("unix://") else {"socket_keepalive": True}
    try:
        client: Redis = Redis.from_url(  # pyright: ignore[reportUnknownMemberType]
            url,
            socket_timeout=timeout_seconds,
            socket_connect_timeout=CONNECT_TIMEOUT_SECONDS,
            retry=Retry(NoBackoff(), 0),
            **tcp_only,
        )
    except ValueError as exc:
        raise UsageError(f"{redacted(url)!r} is not a Redis URL: {exc}") from None
    return client


@contextmanager
def translated() -> Generator[None]:
    """Raise the store's errors instead of Redis'."""
    try:
        yield
    except (AuthenticationError, AuthorizationError) as exc:
        raise StoreMisconfigured(f"Redis refuses the credentials: {exc}") from exc
    except (RedisConnectionError, RedisTimeoutError, OSError) as exc:
        raise StoreUnavailable(f"Redis cannot be reached: {exc or type(exc).__name__}") from exc
    except ResponseError as exc:
        raise _response_error(exc) from exc
    except RedisError as exc:
        raise StoreUnavailable(f"Redis failed: {exc}") from exc


def _response_error(exc: ResponseError) -> Exception:
    text = str(exc)
    word = text.split(" ", 1)[0]
    if word == _OUT_OF_MEMORY or "OOM command not allowed" in text:
        return QueueFull("Redis has used up its memory; no job can be taken until some are done")
    if word in _NOT_NOW or any(f"-{code} " in text for code in _NOT_NOW):
        return StoreUnavailable(f"Redis is not ready: {text}")
    if any(code in text for code in ("NOAUTH", "WRONGPASS", "NOPERM")):
        return StoreMisconfigured(f"Redis refuses the credentials: {text}")
    return StoreMisconfigured(f"Redis does not hold what llmqueue expects: {text}")
