"""Several real valkey-servers as one store: a primary with replicas and Sentinels, and a cluster.

Both have the words of `ValkeyServer`: `url`, `start`, `stop`. Processes die with the test process,
folders go with `stop()`.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Self

from redis.asyncio import Redis
from redis.exceptions import RedisError

from support.valkey import ValkeyServer, free_port

PRIMARY_NAME = "llmq"
_DOWN_AFTER_MS = 1000
_PATIENCE_SECONDS = 30.0
_SLOTS = 16384


async def ask(server: ValkeyServer, *command: Any) -> Any:
    """One command on a connection of its own."""
    client = Redis(port=server.port, socket_timeout=5)
    try:
        return await client.execute_command(*command)
    finally:
        await client.aclose()


async def _until(ask_for: Callable[[], Awaitable[bool]], what: str) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            if await ask_for():
                return
        except (RedisError, OSError):
            pass
        assert time.monotonic() < deadline, f"{what}: not within {_PATIENCE_SECONDS} s"
        await asyncio.sleep(0.05)


async def _end(*servers: ValkeyServer) -> None:
    await asyncio.gather(*(server.kill() for server in servers))
    for server in servers:
        shutil.rmtree(server.folder, ignore_errors=True)


class SentinelServer(ValkeyServer):
    """A Sentinel: a server with a configuration file that it rewrites."""

    def __init__(self, primary: ValkeyServer) -> None:
        super().__init__()
        self._config = Path(self.folder / "sentinel.conf")
        self._config.write_text(
            f"sentinel monitor {PRIMARY_NAME} 127.0.0.1 {primary.port} 2\n"
            f"sentinel down-after-milliseconds {PRIMARY_NAME} {_DOWN_AFTER_MS}\n"
            f"sentinel failover-timeout {PRIMARY_NAME} 3000\n"
            f"sentinel parallel-syncs {PRIMARY_NAME} 2\n"
        )

    def arguments(self) -> list[str]:
        return [
            str(self._config),
            "--sentinel",
            *("--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)),
            *("--logfile", str(self.folder / "log")),
        ]


class SentinelSet:
    """One primary, two replicas, three Sentinels.

    `options` are those of the three servers, e.g. `{"appendfsync": "always"}`.
    """

    def __init__(self, *, options: dict[str, str] | None = None) -> None:
        options = {"repl-diskless-sync-delay": "0", "repl-timeout": "5", **(options or {})}
        self.servers = [ValkeyServer(options=options) for _ in range(3)]
        self.sentinels = [SentinelServer(self.servers[0]) for _ in range(3)]

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{hosts}/{PRIMARY_NAME}/0"

    async def start(self) -> None:
        await asyncio.gather(*(server.start() for server in self.servers))
        for replica in self.servers[1:]:
            await ask(replica, "REPLICAOF", "127.0.0.1", str(self.servers[0].port))
        await self.replicated(2)
        await asyncio.gather(*(sentinel.start() for sentinel in self.sentinels))
        await self._settled()

    async def _settled(self) -> None:
        """Until each Sentinel knows the others and both replicas."""

        async def seen() -> bool:
            for sentinel in self.sentinels:
                raw = await ask(sentinel, "SENTINEL MASTER", PRIMARY_NAME)
                if raw.get("num-other-sentinels") != 2 or raw.get("num-slaves") != 2:
                    return False
            return True

        await _until(seen, "Sentinels that know each other")

    async def replicated(self, count: int) -> None:
        """Until so many replicas are in step with the primary."""

        async def in_step() -> bool:
            info = await ask(await self.primary(), "INFO", "replication")
            replicas = [info.get(f"slave{n}", {}) for n in range(2)]
            return sum(each.get("state") == "online" for each in replicas) >= count

        await _until(in_step, f"{count} replicas in step")

    async def primary(self) -> ValkeyServer:
        """Whoever the Sentinels name, else whoever takes itself for it."""
        for sentinel in self.sentinels:
            if sentinel.running:
                raw = await ask(sentinel, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", PRIMARY_NAME)
                return next(server for server in self.servers if server.port == int(raw[1]))
        return self.servers[0]

    async def replicas(self) -> list[ValkeyServer]:
        primary = await self.primary()
        return [server for server in self.servers if server is not primary]

    async def kill_primary(self) -> ValkeyServer:
        """kill -9; returns once another one is primary. The dead one is returned, not restarted."""
        dead = await self.primary()
        await dead.kill()
        await self.promoted(dead)
        return dead

    async def promoted(self, before: ValkeyServer) -> None:
        """Until all Sentinels name another primary."""

        async def other() -> bool:
            for sentinel in self.sentinels:
                raw = await ask(sentinel, "SENTINEL MASTER", PRIMARY_NAME)
                if raw["port"] == before.port or not raw["is_master"] or raw["is_sdown"]:
                    return False
            return True

        await _until(other, "a new primary")

    async def failover(self) -> None:
        """In order: a replica is promoted, the old primary follows it."""
        before = await self.primary()
        await ask(self.sentinels[0], "SENTINEL", "FAILOVER", PRIMARY_NAME)
        await self.promoted(before)
        await self.whole()

    async def bring_back(self, dead: ValkeyServer) -> None:
        """Start a killed server on its own data; the Sentinels make it a replica."""
        await dead.start()
        await self.whole()

    async def whole(self) -> None:
        """Until both replicas are in step and every Sentinel agrees who is primary."""
        await self.replicated(2)
        await self._settled()

    async def stop(self) -> None:
        await _end(*self.sentinels, *self.servers)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()


class ClusterOfThree:
    """Three primaries with a third of the slots each; `replicas=True` adds one replica to each.

    `query` is of the URL.
    """

    def __init__(
        self,
        *,
        replicas: bool = False,
        options: dict[str, str] | None = None,
        query: str = "",
    ) -> None:
        self._query = query
        options = {
            "cluster-enabled": "yes",
            "cluster-node-timeout": "1500",
            "repl-diskless-sync-delay": "0",
            **(options or {}),
        }
        # The default is 10,000 above the port, which may be too high.
        self._bus_ports = [free_port() for _ in range(6 if replicas else 3)]
        self.servers = [
            ValkeyServer(options=options | {"cluster-port": str(port)}) for port in self._bus_ports
        ]

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in self.servers[:3])
        return f"redis+cluster://{hosts}{self._query}"

    async def start(self) -> None:
        await asyncio.gather(*(server.start() for server in self.servers))
        bounds = [0, _SLOTS // 3, 2 * _SLOTS // 3, _SLOTS]
        for n, server in enumerate(self.servers[:3]):
            await ask(server, "CLUSTER", "ADDSLOTSRANGE", bounds[n], bounds[n + 1] - 1)
            await ask(server, "CLUSTER", "SET-CONFIG-EPOCH", n + 1)
        for server in self.servers[1:]:
            await ask(
                server, "CLUSTER", "MEET", "127.0.0.1", self.servers[0].port, self._bus_ports[0]
            )
        await self.whole()
        for n, replica in enumerate(self.servers[3:]):
            await ask(replica, "CLUSTER", "REPLICATE", await self.node_id(self.servers[n]))
        if len(self.servers) > 3:
            await self._replicated()

    async def node_id(self, server: ValkeyServer) -> str:
        raw = await ask(server, "CLUSTER", "MYID")
        return raw.decode() if isinstance(raw, bytes) else str(raw)

    async def whole(self) -> None:
        """Until every running node knows all others and all slots are served."""
        running = [server for server in self.servers if server.running]

        async def agreed() -> bool:
            for server in running:
                raw = await ask(server, "CLUSTER INFO")
                if raw["cluster_state"] != "ok" or int(raw["cluster_known_nodes"]) < len(running):
                    return False
            return True

        await _until(agreed, "a cluster in order")

    async def _replicated(self) -> None:
        async def in_step() -> bool:
            infos = [await ask(server, "INFO", "replication") for server in self.servers]
            linked = [i for i in infos if i.get("master_link_status") == "up"]
            return len(linked) == 3

        await _until(in_step, "three replicas in step")

    async def owner(self, slot: int) -> ValkeyServer:
        """The primary that serves a slot."""
        for server in self.servers:
            if not server.running:
                continue
            for low, high, node, *_ in await ask(server, "CLUSTER", "SLOTS"):
                if low <= slot <= high:
                    return next(each for each in self.servers if each.port == int(node[1]))
        raise AssertionError(f"nobody serves slot {slot}")

    async def kill_owner(self, slot: int) -> ValkeyServer:
        """kill -9 of a slot's primary; returns once its replica serves the slot."""
        dead = await self.owner(slot)
        await dead.kill()

        async def taken_over() -> bool:
            return await self.owner(slot) is not dead

        await _until(taken_over, "a replica that took over")
        await self.whole()
        return dead

    async def begin_move(self, slot: int) -> tuple[ValkeyServer, ValkeyServer]:
        """Mark a slot as moving, and move none of its keys. Returns source and target."""
        source = await self.owner(slot)
        target = next(s for s in self.servers[:3] if s is not source)
        source_id, target_id = await self.node_id(source), await self.node_id(target)
        await ask(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", source_id)
        await ask(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", target_id)
        return source, target

    async def move_keys(
        self, slot: int, source: ValkeyServer, target: ValkeyServer, *, most: int
    ) -> int:
        """Move up to so many of its keys; returns how many."""
        keys = await ask(source, "CLUSTER", "GETKEYSINSLOT", slot, most)
        if keys:
            command = ("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *keys)
            await ask(source, *command)
        return len(keys)

    async def end_move(self, slot: int, source: ValkeyServer, target: ValkeyServer) -> None:
        while await self.move_keys(slot, source, target, most=100):
            pass
        target_id = await self.node_id(target)
        for server in (target, source, *self.servers[:3]):
            await ask(server, "CLUSTER", "SETSLOT", slot, "NODE", target_id)

    async def stop(self) -> None:
        await _end(*self.servers)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()
