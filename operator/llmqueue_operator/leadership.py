"""Which replica acts: a Lease, renewed while it is held, given back at the end.

The library's leader election counts time by the wall clock and blocks; this one counts by the
monotonic clock and has `check`, to be asked right before each write.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import structlog

from llmqueue.documents import object_at
from llmqueue.errors import UsageError
from llmqueue_operator.errors import ApiError, NotLeading, StaleVersion
from llmqueue_operator.kube import LEASES, Cluster
from llmqueue_operator.names import INSTALLATION_ANNOTATION

DURATION_SECONDS = 15.0
"""A Lease that was not renewed for so long is free."""
FRESH_SECONDS = 10.0
"""Writes stop this long after the last renewal was asked for: before another may begin."""
RETRY_SECONDS = 2.0
_REQUEST_SECONDS = 5.0
NAME = "llmqueue-operator"

_log = structlog.get_logger()
Object = dict[str, Any]


class Leadership:
    """Takes part in the election until cancelled; `leading` is set while this replica holds the
    Lease. `clock` is monotonic."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        namespace: str,
        identity: str,
        installation: str,
        clock: Callable[[], float],
    ) -> None:
        self._cluster, self._namespace = cluster, namespace
        self._identity, self._installation = identity, installation
        self._clock = clock
        self._lease: Object | None = None
        self._seen: tuple[str, str, float] | None = None
        """Holder and renewal as last seen, and when that was first seen: other machines' clocks
        are not compared with this one's."""
        self._renewed_at: float | None = None
        self.leading = asyncio.Event()
        self.lost = asyncio.Event()
        """The opposite."""
        self.lost.set()
        self.term = 0
        """Counts the times this replica became leader."""

    def check(self) -> None:
        """Raises NotLeading unless the Lease was renewed a moment ago."""
        renewed = self._renewed_at
        if not self.leading.is_set() or renewed is None:
            raise NotLeading("another replica leads")
        if self._clock() - renewed >= FRESH_SECONDS:
            raise NotLeading("the Lease could not be renewed in time")

    async def run(self) -> None:
        """Raises UsageError where another installation's operator serves the namespace."""
        while True:
            try:
                async with asyncio.timeout(_REQUEST_SECONDS):
                    await self._round()
            except (ApiError, TimeoutError) as exc:
                _log.warning("lease-not-renewed", error=str(exc) or type(exc).__name__)
            self._step_down_when_old()
            await asyncio.sleep(RETRY_SECONDS * random.uniform(0.9, 1.1))

    async def _round(self) -> None:
        asked_at = self._clock()
        lease = await self._cluster.lease(self._namespace, NAME)
        if lease is None:
            lease = await self._cluster.create_lease(self._namespace, self._document(None))
        elif self._free(lease):
            lease = await self._replace(lease)
        if lease is None or lease["spec"].get("holderIdentity") != self._identity:
            self._lose("another replica holds the Lease")
            return
        self._lease, self._renewed_at = lease, asked_at
        if not self.leading.is_set():
            self.term += 1
            _log.info("leading", identity=self._identity, term=self.term)
            self.lost.clear()
            self.leading.set()

    async def _replace(self, lease: Object) -> Object | None:
        try:
            return await self._cluster.replace_lease(self._namespace, NAME, self._document(lease))
        except StaleVersion:
            return None

    def _free(self, lease: Object) -> bool:
        """Whether this replica may take or renew it. Raises UsageError."""
        spec, now = lease["spec"], self._clock()
        holder, renewal = spec.get("holderIdentity") or "", spec.get("renewTime") or ""
        if holder in ("", self._identity):
            return True
        known = self._seen
        if known is None or known[:2] != (holder, renewal):
            self._seen = (holder, renewal, now)
            if known is not None and known[0] == holder:
                self._refuse_company(lease, holder)
            return False
        duration = float(spec.get("leaseDurationSeconds") or DURATION_SECONDS)
        return now - known[2] >= duration

    def _refuse_company(self, lease: Object, holder: str) -> None:
        """The holder is alive: it must be a replica of this installation."""
        other = object_at(lease, "metadata", "annotations").get(INSTALLATION_ANNOTATION, "")
        if other != self._installation:
            raise UsageError(
                f"namespace {self._namespace} is served by {holder} of installation {other!r};"
                f" this is installation {self._installation!r}. Remove one of them"
            )

    def _document(self, lease: Object | None) -> Object:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        old = object_at(lease, "spec")
        mine = old.get("holderIdentity") == self._identity
        document: Object = {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {
                "name": NAME,
                "namespace": self._namespace,
                "annotations": {INSTALLATION_ANNOTATION: self._installation},
            },
            "spec": {
                "holderIdentity": self._identity,
                "leaseDurationSeconds": int(DURATION_SECONDS),
                "acquireTime": old.get("acquireTime") if mine else now,
                "renewTime": now,
                "leaseTransitions": int(old.get("leaseTransitions") or 0)
                + (not mine and bool(old)),
            },
        }
        if lease is not None:
            document["metadata"]["resourceVersion"] = lease["metadata"]["resourceVersion"]
        return document

    def _step_down_when_old(self) -> None:
        if self._renewed_at is None or self._clock() - self._renewed_at >= FRESH_SECONDS:
            self._lose("the Lease could not be renewed in time")

    def _lose(self, why: str) -> None:
        if self.leading.is_set():
            _log.warning("not-leading", identity=self._identity, reason=why)
        self.leading.clear()
        self.lost.set()

    async def release(self) -> None:
        """Give the Lease back, so that the next one need not wait."""
        if not self.leading.is_set() or self._lease is None:
            return
        self.leading.clear()
        document = self._document(self._lease)
        document["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1}
        try:
            async with asyncio.timeout(_REQUEST_SECONDS):
                await self._cluster.replace_lease(self._namespace, NAME, document)
        except (ApiError, TimeoutError) as exc:
            _log.warning("lease-not-released", error=str(exc) or type(exc).__name__)
