"""Redis' errors as errors of ours: one path, one outcome for each kind."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from redis.exceptions import (
    AskError,
    AuthenticationError,
    AuthorizationError,
    ClusterDownError,
    MovedError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisClusterException,
    RedisError,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from llmqueue.errors import QueueFull, StoreMisconfigured, StoreRefused, StoreUnavailable

_NOT_NOW = ("NOREPLICAS", "MISCONF", "BUSY", "UNKILLABLE", "UNBLOCKED", "NOMASTERLINK")
"""Error words that redis-py has no exception for; it leaves them at the start of the message."""
_REFUSED_IN_SCRIPT = "ACL failure in script"
_NOT_NOW_ERRORS = (ReadOnlyError, ClusterDownError, TryAgainError, AskError)
_MOVING = ("attempted to access a non local key", "attempted to execute a")
"""What a cluster says of a script while its slot moves, or while it is down (Redis and Valkey begin
the sentence differently)."""


@contextmanager
def translated() -> Generator[None]:
    """Raise the store's errors instead of Redis'."""
    try:
        yield
    except (AuthenticationError, AuthorizationError) as exc:
        raise StoreRefused(f"Redis refuses the credentials: {exc}") from exc
    except (RedisConnectionError, RedisTimeoutError, OSError) as exc:
        raise StoreUnavailable(f"Redis cannot be reached: {exc or type(exc).__name__}") from exc
    except ResponseError as exc:
        raise _response_error(exc) from exc
    except RedisClusterException as exc:
        raise _cluster_error(exc) from exc
    except RedisError as exc:
        raise StoreUnavailable(f"Redis failed: {exc}") from exc


def _response_error(exc: ResponseError) -> Exception:
    """An error answer; redis-py has taken the error word off where it knows it."""
    text = str(exc)
    if isinstance(exc, OutOfMemoryError):
        return QueueFull("Redis has used up its memory; no job can be taken until some are done")
    if isinstance(exc, NoPermissionError) or _REFUSED_IN_SCRIPT in text:
        return StoreRefused(f"Redis refuses the credentials: {text}")
    if isinstance(exc, MovedError):
        return StoreMisconfigured(
            "this Redis is one node of a cluster: its URL must begin with redis+cluster://"
        )
    if any(words in text.lower() for words in _MOVING):
        return StoreUnavailable(f"Redis is not ready, the cluster moves slots: {text}")
    if isinstance(exc, _NOT_NOW_ERRORS) or text.split(" ", 1)[0] in _NOT_NOW:
        return StoreUnavailable(f"Redis is not ready: {text}")
    return StoreMisconfigured(f"Redis does not hold what llmqueue expects: {text}")


def _cluster_error(exc: RedisClusterException) -> Exception:
    """The cluster's map could not be read; what its nodes said is the cause."""
    cause = exc.__cause__
    if isinstance(cause, AuthenticationError | AuthorizationError | NoPermissionError):
        return StoreRefused(f"Redis refuses the credentials: {cause}")
    if isinstance(cause, RedisClusterException):
        return StoreMisconfigured(
            "this Redis is no cluster: its URL must begin with redis:// or redis+sentinel://"
        )
    return StoreUnavailable(f"Redis cannot be reached: {exc}")
