"""How commands find the primary that holds their key: one server, Sentinels, a cluster.

No client here repeats a command by itself: a script may have run, only we know which may run twice.
A refusal that says where to go (MOVED) is followed, since nothing was run.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from redis.asyncio import Redis, RedisCluster, Sentinel
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.connection import SSLConnection, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    MovedError,
    RedisClusterException,
    RedisError,
    ResponseError,
    TryAgainError,
)

from llmqueue.errors import UsageError
from llmqueue.store.address import Address, redacted

COMMAND_TIMEOUT_SECONDS = 5.0
CONNECT_TIMEOUT_SECONDS = 3.0
SENTINEL_TIMEOUT_SECONDS = 1.0
"""The next Sentinel knows as much."""

Call = tuple[str, Sequence[Any]]
"""A key, and the command that is sent to whoever holds it."""


class Topology(Protocol):
    """`client` takes commands on single keys. Errors are redis-py's."""

    client: Any

    async def ask(self, calls: Sequence[Call]) -> list[Any]:
        """Commands in one go, those on one key over one connection in their order.

        Returns the answers; an error stands in the place of its answer. Raises what concerns all.
        """
        ...

    async def ask_primaries(self, *command: Any) -> list[Any]:
        """One command to each primary."""
        ...

    async def find_anew(self) -> None:
        """After trouble: the next command looks for its primary again."""
        ...

    def listener(self) -> Any:
        """A client of its own for pub/sub, which waits for ever."""
        ...

    async def close(self) -> None: ...


def open_topology(
    address: Address, *, timeout_seconds: float | None = COMMAND_TIMEOUT_SECONDS
) -> Topology:
    """Raises UsageError where an option of the URL is none."""
    kinds: dict[str, Callable[[Address, float | None], Topology]] = {
        "server": Server,
        "sentinel": Watched,
        "cluster": Cluster,
    }
    try:
        return kinds[address.kind](address, timeout_seconds)
    except (TypeError, ValueError) as exc:
        raise UsageError(f"{redacted(address.url)!r} is not a Redis URL: {exc}") from None


def _never_again() -> Retry:
    return Retry(NoBackoff(), 0)


def _options(address: Address, timeout_seconds: float | None) -> dict[str, Any]:
    """Of connections to any host; what the URL says wins."""
    url: dict[str, Any] = dict(parse_url(address.url))
    if url.pop("connection_class", None) is SSLConnection:
        url["ssl"] = True
    for name in ("host", "port"):
        url.pop(name, None)
    return {
        "socket_timeout": timeout_seconds,
        "socket_connect_timeout": CONNECT_TIMEOUT_SECONDS,
        "socket_keepalive": True,
        **url,
    }


def _verify_options(pool: Any) -> None:
    """Make a connection and drop it: else redis-py refuses an option at the first call only."""
    pool.connection_class(**pool.connection_kwargs)


class _One:
    """What a client with one connection pool does."""

    client: Any

    async def ask(self, calls: Sequence[Call]) -> list[Any]:
        if len(calls) == 1:
            try:
                return [await self.client.execute_command(*calls[0][1])]
            except ResponseError as exc:
                return [exc]
        pipeline = self.client.pipeline(transaction=False)
        for _, command in calls:
            pipeline.execute_command(*command)
        return list(await pipeline.execute(raise_on_error=False))

    async def ask_primaries(self, *command: Any) -> list[Any]:
        return [await self.client.execute_command(*command)]

    async def find_anew(self) -> None:
        await self.client.connection_pool.disconnect(inuse_connections=False)


class Server(_One):
    """One server at a fixed address."""

    def __init__(self, address: Address, timeout_seconds: float | None) -> None:
        self._address = address
        self.client = self._open(timeout_seconds)
        _verify_options(self.client.connection_pool)

    def _open(self, timeout_seconds: float | None) -> Any:
        # A unix socket has no keep-alive, and redis-py refuses the option for it.
        tcp_only = {} if self._address.url.startswith("unix://") else {"socket_keepalive": True}
        return Redis.from_url(  # pyright: ignore[reportUnknownMemberType]
            self._address.url,
            socket_timeout=timeout_seconds,
            socket_connect_timeout=CONNECT_TIMEOUT_SECONDS,
            retry=_never_again(),
            **tcp_only,
        )

    def listener(self) -> Any:
        return self._open(None)

    async def close(self) -> None:
        await self.client.aclose()


class Watched(_One):
    """The primary that Sentinels name; each new connection asks them anew."""

    def __init__(self, address: Address, timeout_seconds: float | None) -> None:
        options = _options(address, timeout_seconds)
        self._options, self._primary = options, address.primary
        tls = {name: value for name, value in options.items() if name.startswith("ssl")}
        self._sentinel: Any = Sentinel(  # type: ignore[no-untyped-call]
            list(address.hosts),
            sentinel_kwargs={
                "socket_timeout": SENTINEL_TIMEOUT_SECONDS,
                "socket_connect_timeout": SENTINEL_TIMEOUT_SECONDS,
                "username": address.sentinel_username,
                "password": address.sentinel_password,
                "retry": _never_again(),
                **tls,
            },
        )
        self.client = self._open(timeout_seconds)
        _verify_options(self.client.connection_pool)

    def _open(self, timeout_seconds: float | None) -> Any:
        options = dict(self._options, socket_timeout=timeout_seconds)
        return self._sentinel.master_for(self._primary, retry=_never_again(), **options)

    def listener(self) -> Any:
        return self._open(None)

    async def close(self) -> None:
        await self.client.aclose()
        for sentinel in self._sentinel.sentinels:
            await sentinel.aclose()


class Cluster:
    """Primaries that share the slots between them; a budget's keys are all on one."""

    def __init__(self, address: Address, timeout_seconds: float | None) -> None:
        self._options = _options(address, timeout_seconds)
        self._options.pop("db", None)
        self._hosts = address.hosts
        self.client: Any = RedisCluster(
            startup_nodes=[ClusterNode(host, port) for host, port in address.hosts],
            retry=_never_again(),
            **self._options,
        )

    async def ask(self, calls: Sequence[Call]) -> list[Any]:
        answers = await self._ask_once(calls)
        keys = {key for key, _ in calls}
        if len(keys) == 1 and any(isinstance(answer, MovedError) for answer in answers):
            # A command on the key alone is redirected, and leaves the new address behind.
            await self.client.execute_command("EXISTS", *keys)
            answers = await self._ask_once(calls)
        return [
            TryAgainError(str(answer)) if isinstance(answer, MovedError) else answer
            for answer in answers
        ]

    async def _ask_once(self, calls: Sequence[Call]) -> list[Any]:
        await self.client.initialize()
        pipeline = self.client.pipeline()
        for key, command in calls:
            # With the node named redis-py need not ask the server which argument is the key.
            node = self.client.get_node_from_key(key)
            pipeline.execute_command(*command, target_nodes=node)
        # Without redirections: MOVED would part a command from the one that vouches for it, and
        # behind ASK is a node that has some of the keys only.
        return list(await pipeline.execute(raise_on_error=False, allow_redirections=False))

    async def ask_primaries(self, *command: Any) -> list[Any]:
        await self.client.initialize()
        return [
            await self.client.execute_command(*command, target_nodes=node)
            for node in self.client.get_primaries()
        ]

    async def find_anew(self) -> None:
        # It fails while the trouble lasts; the next command meets it again.
        with contextlib.suppress(RedisError, RedisClusterException, OSError):
            await self.client.nodes_manager.initialize()

    def listener(self) -> Any:
        """Of one node: what is published anywhere in a cluster is heard everywhere."""
        known = [(node.host, node.port) for node in self.client.get_nodes()] or self._hosts
        host, port = random.choice(known)
        options = dict(self._options, socket_timeout=None)
        return Redis(host=host, port=port, retry=_never_again(), **options)

    async def close(self) -> None:
        await self.client.aclose()
