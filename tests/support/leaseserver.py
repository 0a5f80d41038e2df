"""An API server for one Lease: versions, conflicts, annotations; answers can be late or lost."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

from llmqueue_operator.errors import AlreadyExists, ApiUnavailable, StaleVersion

Object = dict[str, Any]


class LeaseServer:
    """The Lease as the server keeps it."""

    def __init__(self) -> None:
        self.lease: Object | None = None
        self.version = 0
        self.writes = 0

    @property
    def holder(self) -> str:
        return self.lease["spec"]["holderIdentity"] if self.lease else ""

    def _store(self, document: Object) -> Object:
        self.version += 1
        self.writes += 1
        self.lease = copy.deepcopy(document)
        self.lease["metadata"]["resourceVersion"] = str(self.version)
        return copy.deepcopy(self.lease)

    def get(self) -> Object | None:
        return copy.deepcopy(self.lease)

    def create(self, document: Object) -> Object:
        if self.lease is not None:
            raise AlreadyExists("leases already exists")
        assert "resourceVersion" not in document["metadata"], "the server refuses that"
        return self._store(document)

    def replace(self, document: Object) -> Object:
        if (
            self.lease is None
            or document["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]
        ):
            raise StaleVersion("the object has been modified")
        return self._store(document)


class LeaseClient:
    """One replica's way to the server; stands for `kube.Cluster`.

    `way` and `back` are how long a request and its answer take, `down` loses them.
    """

    def __init__(self, server: LeaseServer) -> None:
        self.server = server
        self.way = self.back = 0.0
        self.down = False

    async def _exchange(self, act: Any, *args: Any) -> Any:
        await asyncio.sleep(self.way)
        if self.down:
            raise ApiUnavailable("the API server does not answer")
        try:
            return act(*args)
        finally:
            await asyncio.sleep(self.back)

    async def lease(self, namespace: str, name: str) -> Object | None:
        return await self._exchange(self.server.get)

    async def create_lease(self, namespace: str, lease: Object) -> Object:
        return await self._exchange(self.server.create, lease)

    async def replace_lease(self, namespace: str, name: str, lease: Object) -> Object:
        return await self._exchange(self.server.replace, lease)
