"""Connections, and Redis errors as errors of ours: one path, one outcome for each kind."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from urllib.parse import urlsplit

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AskError,
    AuthenticationError,
    AuthorizationError,
    ClusterDownError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from llmqueue.errors import QueueFull, StoreMisconfigured, StoreUnavailable, UsageError

_NOT_NOW = ("NOREPLICAS", "MISCONF", "BUSY", "UNKILLABLE", "UNBLOCKED", "NOMASTERLINK")
"""Error words that redis-py has no exception for; it leaves them at the start of the message."""
_NOT_NOW_ERRORS = (ReadOnlyError, ClusterDownError, TryAgainError, AskError)
COMMAND_TIMEOUT_SECONDS = 5.0
CONNECT_TIMEOUT_SECONDS = 3.0


def redacted(url: str) -> str:
    """The URL without its password, for people to read; of what is no URL only that."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "***"
    if not parts.netloc and parts.scheme != "unix":
        return "***"  # without a scheme a password is anywhere
    if "password=" in parts.query:
        parts = parts._replace(query="***")
    if "@" in parts.netloc:
        parts = parts._replace(netloc="***@" + parts.netloc.rsplit("@", 1)[1])
    return parts.geturl()


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
    """An error answer; redis-py has taken the error word off where it knows it."""
    text = str(exc)
    if isinstance(exc, OutOfMemoryError):
        return QueueFull("Redis has used up its memory; no job can be taken until some are done")
    if isinstance(exc, NoPermissionError):
        return StoreMisconfigured(f"Redis refuses the credentials: {text}")
    if isinstance(exc, _NOT_NOW_ERRORS) or text.split(" ", 1)[0] in _NOT_NOW:
        return StoreUnavailable(f"Redis is not ready: {text}")
    return StoreMisconfigured(f"Redis does not hold what llmqueue expects: {text}")
