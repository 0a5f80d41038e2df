"""Stands for `kube.Cluster` where a test wants to know in which order what was asked of it."""

from __future__ import annotations

from typing import Any

from llmqueue_operator.errors import ApiError, FieldConflict, NotFound, StaleVersion

Object = dict[str, Any]


class RecordedCluster:
    """Answers from what a test put there and notes every call in `calls`, oldest first."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.queues: dict[str, Object] = {}
        """"<namespace>/<name>" → raw object; the same below."""
        self.deployments: dict[str, Object] = {}
        self.fresh_pods: list[Object] = []
        self.events: list[Object] = []
        self.documents: list[Object] = []
        """Of Deployments, as they were asked for, oldest first."""
        self.statuses: dict[str, Object] = {}
        self.owner: str | None = None
        """Another manager that owns the replicas now; a forced write takes them from it."""
        self.failures: dict[str, ApiError] = {}
        """Method → what it raises from now on."""
        self._version = 1000

    def _note(self, method: str, *what: Any) -> None:
        self.calls.append((method, *what))
        if method in self.failures:
            raise self.failures[method]

    def asked(self, method: str) -> list[tuple[Any, ...]]:
        """Arguments of every call of a method."""
        return [call[1:] for call in self.calls if call[0] == method]

    @property
    def writes(self) -> list[str]:
        """Methods that changed something, in order."""
        reads = ("queue", "deployment", "pods")
        return [call[0] for call in self.calls if call[0] not in reads]

    # ------------------------------------------------------------ reading

    async def queue(self, namespace: str, name: str) -> Object | None:
        self._note("queue", name)
        return self.queues.get(f"{namespace}/{name}")

    async def deployment(self, namespace: str, name: str) -> Object | None:
        self._note("deployment", name)
        return self.deployments.get(f"{namespace}/{name}")

    async def pods(self, namespace: str, queue: str) -> list[Object]:
        self._note("pods", queue)
        return self.fresh_pods

    # ------------------------------------------------------------ writing

    async def create_deployment(self, document: Object, replicas: int) -> Object:
        self._note("create", document["metadata"]["name"], replicas)
        self.documents.append(document)
        return self._stored(document, replicas)

    async def apply_deployment(self, document: Object) -> Object:
        self._note("apply", document["metadata"]["name"])
        self.documents.append(document)
        key = f"{document['metadata']['namespace']}/{document['metadata']['name']}"
        return self._stored(document, self.deployments[key]["spec"]["replicas"])

    async def hand_over(self, document: Object) -> Object:
        self._note("hand over", document["metadata"]["name"])
        self.documents.append(document)
        key = f"{document['metadata']['namespace']}/{document['metadata']['name']}"
        return self._stored(document, self.deployments[key]["spec"]["replicas"])

    def _stored(self, document: Object, replicas: int) -> Object:
        meta = document["metadata"]
        key = f"{meta['namespace']}/{meta['name']}"
        self._version += 1
        before = self.deployments.get(key, {"metadata": {"uid": f"uid-{meta['name']}"}})
        self.deployments[key] = {
            **document,
            "metadata": {
                **meta,
                "uid": before["metadata"]["uid"],
                "resourceVersion": str(self._version),
                "generation": before["metadata"].get("generation", 0) + 1,
                "managedFields": [{"manager": "llmqueue"}],
            },
            "spec": {**document["spec"], "replicas": replicas},
        }
        return self.deployments[key]

    async def scale(
        self,
        namespace: str,
        name: str,
        replicas: int,
        *,
        version: str | None,
        force: bool = False,
    ) -> Object:
        self._note("scale", replicas, force)
        found = self.deployments.get(f"{namespace}/{name}")
        if found is None:
            raise NotFound(name)
        if version is not None and found["metadata"]["resourceVersion"] != version:
            raise StaleVersion("the object has been modified")
        if self.owner is not None and not force:
            raise FieldConflict("conflict", managers=(self.owner,))
        self.owner = None
        return self._stored(found, replicas)

    async def set_deletion_cost(self, namespace: str, pod: str, cost: int | None) -> None:
        self._note("cost", pod, cost)

    async def write_status(self, namespace: str, name: str, uid: str, status: Object) -> None:
        self._note("status", name, uid)
        self.statuses[f"{namespace}/{name}"] = status

    async def post_event(self, namespace: str, event: Object) -> None:
        self._note("event", event["reason"])
        self.events.append(event)
