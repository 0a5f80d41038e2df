"""Strict durability: a step counts once it is on disk here and on enough replicas.

WAITAOF goes right behind the step on the same connection, and vouches for all that the server had
written by then: of a repeated step that found itself done, also for what its first run wrote.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from redis.exceptions import ResponseError

from llmqueue.errors import StoreMisconfigured, StoreUnavailable

STRICT = "Strict"
ACKNOWLEDGE_SECONDS = 3.0
"""Below the time that an answer may take: a refusal arrives as one, not as a silence."""
_RECEIVE_SECONDS = 1.0
NOT_RELIED_ON = frozenset(
    {
        "claim",
        "heartbeat",
        "snapshot",
        "leave",
        "drain",
        "progress",
        "read",
        "states",
        "tenants",
        "listen",
    }
)
"""Nothing irrevocable follows from these: a claim that a failover loses is refused by `sent`, and
the others only read or show, or are repeated for ever. Every other function waits."""


def request(replicas: int) -> list[tuple[str | int, ...]]:
    """The commands that wait; the answer of the last one counts.

    A replica is asked how far it is as soon as it has a write, before it has synced it, and tells
    by itself only once a second. It has synced what it has answered WAIT for, so that WAITAOF, the
    second time it is asked, need not wait for that second.
    """
    acknowledge = ("WAITAOF", 1, replicas, round(ACKNOWLEDGE_SECONDS * 1000))
    return (
        [("WAIT", replicas, round(_RECEIVE_SECONDS * 1000)), acknowledge]
        if replicas
        else [acknowledge]
    )


def verify(answer: Any, replicas: int) -> None:
    """Raises StoreUnavailable unless local disk and replicas have it; to be repeated then."""
    if isinstance(answer, ResponseError) and str(answer).startswith(
        ("WAITAOF cannot be used when", "unknown command")
    ):
        raise StoreMisconfigured(
            f"spec.redis.durability Strict needs Redis 7.2 or Valkey 8 and newer with"
            f" appendonly yes: {answer}"
        ) from answer
    if isinstance(answer, Exception):
        raise answer
    local, acknowledged = answer
    if local < 1 or acknowledged < replicas:
        raise StoreUnavailable(
            f"not durable yet: {acknowledged} of {replicas} replicas and the disk"
            f" {'have' if local else 'has not'} acknowledged within {ACKNOWLEDGE_SECONDS:.0f} s"
        )


def obstacle(info: Mapping[str, Any]) -> str | None:
    """Why a server cannot serve Strict queues, from its INFO."""
    version = tuple(int(part) for part in str(info.get("redis_version", "0")).split(".")[:2])
    if version < (7, 2):
        return "it is older than Redis 7.2 and has no WAITAOF"
    if not info.get("aof_enabled"):
        return "its append-only file is off; set appendonly yes"
    return None


def slowness(appendfsync: str) -> str | None:
    """A warning where the server makes every step of a Strict queue wait."""
    if appendfsync == "always":
        return None
    return (
        f"appendfsync is {appendfsync!r}: every step of a Strict queue waits up to a second for the"
        " disk; set appendfsync always"
    )
