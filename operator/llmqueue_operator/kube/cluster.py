"""What the operator asks of a cluster, in its own words."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from llmqueue_operator.errors import NotFound
from llmqueue_operator.kube.client import KubeClient, Object
from llmqueue_operator.kube.kinds import DEPLOYMENTS, EVENTS, LEASES, LLMQUEUES, PODS, Kind
from llmqueue_operator.names import DELETION_COST, MANAGER, QUEUE_LABEL, SCALER


class Cluster:
    """Reads and writes of the objects of LLMQueues.

    `watched` is the namespace that is looked at, None = all. Every method raises ApiError.
    """

    def __init__(self, client: KubeClient, *, watched: str | None) -> None:
        self.client = client
        self.watched = watched

    # ------------------------------------------------------------ reading

    def all_of(self, kind: Kind) -> AsyncIterator[Object]:
        """Every LLMQueue, or every Deployment or pod of one."""
        labels = "" if kind is LLMQUEUES else QUEUE_LABEL
        return self.client.listed(kind, self.watched, labels=labels)

    async def queue(self, namespace: str, name: str) -> Object | None:
        return await self._find(LLMQUEUES, namespace, name)

    async def deployment(self, namespace: str, name: str) -> Object | None:
        return await self._find(DEPLOYMENTS, namespace, name)

    async def pods(self, namespace: str, queue: str) -> list[Object]:
        """The pods of one LLMQueue as they are now."""
        labels = f"{QUEUE_LABEL}={queue}"
        return [pod async for pod in self.client.listed(PODS, namespace, labels=labels)]

    async def _find(self, kind: Kind, namespace: str, name: str) -> Object | None:
        try:
            return await self.client.get(kind, namespace, name)
        except NotFound:
            return None

    # ------------------------------------------------------------ Deployments

    async def create_deployment(self, document: Object, replicas: int) -> Object:
        """Create with a replica count that belongs to the scaler from the start.

        Without replicas in the first apply the server would fill in 1.
        """
        namespace = document["metadata"]["namespace"]
        with_replicas = {**document, "spec": {**document["spec"], "replicas": replicas}}
        await self.client.apply(DEPLOYMENTS, namespace, with_replicas, manager=SCALER)
        return await self.hand_over(document)

    async def hand_over(self, document: Object) -> Object:
        """Leave the scaler nothing but the replicas: what it owns as well could not be removed."""
        found = await self.apply_deployment(document)
        meta, replicas = found["metadata"], found["spec"]["replicas"]
        # Its controller is writing to the new object right now: no version would hold.
        return await self.scale(meta["namespace"], meta["name"], replicas, version=None)

    async def apply_deployment(self, document: Object) -> Object:
        """Everything but the replicas; with a uid only to that very object."""
        namespace = document["metadata"]["namespace"]
        return await self.client.apply(
            DEPLOYMENTS, namespace, document, manager=MANAGER, force=True
        )

    async def scale(
        self,
        namespace: str,
        name: str,
        replicas: int,
        *,
        version: str | None,
        force: bool = False,
    ) -> Object:
        """Set the replicas of exactly this version of the Deployment; None = whatever it is.

        Raises FieldConflict where another manager owns them (not with `force`), StaleVersion.
        """
        document = {
            "apiVersion": DEPLOYMENTS.api_version,
            "kind": DEPLOYMENTS.kind,
            "metadata": {"name": name} | ({"resourceVersion": version} if version else {}),
            "spec": {"replicas": replicas},
        }
        return await self.client.apply(
            DEPLOYMENTS, namespace, document, manager=SCALER, force=force
        )

    async def set_deletion_cost(self, namespace: str, pod: str, cost: int | None) -> None:
        """None removes it. A pod that has gone meanwhile is as good."""
        value = None if cost is None else str(cost)
        change = {"metadata": {"annotations": {DELETION_COST: value}}}
        try:
            await self.client.merge(PODS, namespace, pod, change)
        except NotFound:
            return

    # ------------------------------------------------------------ status, events, Lease

    async def write_status(self, namespace: str, name: str, uid: str, status: Object) -> None:
        """Replace the whole status of exactly this object. Raises StaleVersion for a namesake."""
        document = {
            "apiVersion": LLMQUEUES.api_version,
            "kind": LLMQUEUES.kind,
            "metadata": {"name": name, "uid": uid},
            "status": status,
        }
        await self.client.apply(
            LLMQUEUES, namespace, document, manager=MANAGER, force=True, subresource="status"
        )

    async def post_event(self, namespace: str, event: Object) -> None:
        await self.client.create(EVENTS, namespace, event)

    async def lease(self, namespace: str, name: str) -> Object | None:
        return await self._find(LEASES, namespace, name)

    async def create_lease(self, namespace: str, lease: Object) -> Object:
        return await self.client.create(LEASES, namespace, lease)

    async def replace_lease(self, namespace: str, name: str, lease: Object) -> Object:
        return await self.client.replace(LEASES, namespace, name, lease)

    async def serves_queues(self) -> bool:
        """Whether the CRD is installed."""
        try:
            found: dict[str, Any] = await self.client.request("GET", "/apis/llmqueue.dev/v1alpha1")
        except NotFound:
            return False
        return any(each["name"] == LLMQUEUES.plural for each in found.get("resources", ()))
