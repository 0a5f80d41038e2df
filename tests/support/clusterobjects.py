"""Raw objects as an API server sends them: healthy defaults, and what a test names."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from llmqueue_operator.groups import Member, assemble
from llmqueue_operator.names import (
    DELETION_COST,
    DIGEST_ANNOTATION,
    MANAGER,
    QUEUE_LABEL,
    SCALER,
    TEMPLATE_HASH_LABEL,
    WORKER,
    deployment_name,
)
from llmqueue_operator.views import queue_view

Object = dict[str, Any]
EPOCH_SECONDS = 1_767_225_600.0
"""2026-01-01T00:00:00Z: creation time of everything that does not say another."""


def moment(seconds: float) -> str:
    """So long after EPOCH_SECONDS, as Kubernetes writes it."""
    then = datetime.fromtimestamp(EPOCH_SECONDS + seconds, UTC)
    return then.strftime("%Y-%m-%dT%H:%M:%SZ")


def llmqueue(
    name: str = "q",
    *,
    namespace: str = "default",
    uid: str | None = None,
    version: int | str = 1,
    created: float = 0.0,
    deleting: bool = False,
    status: Object | None = None,
    **sections: Any,
) -> Object:
    """An LLMQueue; `sections` of its spec replace those of the smallest one."""
    meta: Object = {
        "name": name,
        "namespace": namespace,
        "uid": uid or f"uid-{name}",
        "resourceVersion": str(version),
        "generation": 1,
        "creationTimestamp": moment(created),
        "managedFields": [{"manager": "kubectl"}],
    }
    if deleting:
        meta["deletionTimestamp"] = moment(created + 60)
    spec = {"provider": {"type": "openai"}, "limits": {"requestsPerMinute": 60}, **sections}
    raw: Object = {"metadata": meta, "spec": spec}
    if status is not None:
        raw["status"] = status
    return raw


def member(name: str = "q", **fields: Any) -> Member:
    """The only LLMQueue of a budget."""
    group = assemble([queue_view(llmqueue(name, **fields))]).group
    assert group is not None
    return group.members[0]


def deployment(
    queue: str = "q",
    *,
    namespace: str = "default",
    version: int | str = 1,
    replicas: int | None = 3,
    owner: str | None = None,
    applied: str = "digest",
    scalers: tuple[str, ...] = (SCALER,),
    editors: tuple[str, ...] = (),
    generation: int = 1,
    conditions: list[Object] | None = None,
    **meta: Any,
) -> Object:
    """The workers' Deployment; `owner` "" = nobody's, `scalers` own its replicas,
    `editors` something of its template besides the operator."""
    replicas_field = {"f:spec": {"f:replicas": {}}}
    template_field = {"f:spec": {"f:template": {}}}
    owner = f"uid-{queue}" if owner is None else owner
    return {
        "metadata": {
            "name": deployment_name(queue),
            "namespace": namespace,
            "uid": f"uid-deployment-{queue}",
            "resourceVersion": str(version),
            "generation": generation,
            "labels": {QUEUE_LABEL: queue},
            "annotations": {DIGEST_ANNOTATION: applied},
            "ownerReferences": [{"kind": "LLMQueue", "uid": owner, "controller": True}]
            if owner
            else [],
            "managedFields": [
                *({"manager": name, "fieldsV1": template_field} for name in (MANAGER, *editors)),
                *({"manager": name, "fieldsV1": replicas_field} for name in scalers),
            ],
            **meta,
        },
        "spec": {} if replicas is None else {"replicas": replicas},
        "status": {"conditions": conditions or []},
    }


def pod(
    name: str = "a",
    *,
    queue: str = "q",
    namespace: str = "default",
    version: int | str = 1,
    created: float = 0.0,
    started: float | None = 2.0,
    ready: float | None = 5.0,
    cost: str | None = None,
    template: str = "t1",
    deleting: bool = False,
    phase: str = "Running",
    waiting: str | None = None,
    restarts: int = 0,
    replicaset: str | None = None,
    **status: Any,
) -> Object:
    """A worker's pod, running and ready; times in seconds after EPOCH_SECONDS, None = not yet.

    `replicaset` controls it: one of the queue's Deployment, "" = nobody.
    """
    if replicaset is None:
        replicaset = f"{deployment_name(queue)}-abc"
    meta: Object = {
        "name": f"pod-{name}",
        "namespace": namespace,
        "uid": name,
        "resourceVersion": str(version),
        "creationTimestamp": moment(created),
        "labels": {QUEUE_LABEL: queue, TEMPLATE_HASH_LABEL: template},
    }
    if replicaset:
        meta["ownerReferences"] = [
            {"kind": "ReplicaSet", "name": replicaset, "uid": f"uid-{replicaset}",
             "controller": True}
        ]  # fmt: skip
    if cost is not None:
        meta["annotations"] = {DELETION_COST: cost}
    if deleting:
        meta["deletionTimestamp"] = moment(created + 60)
    state: Object = {}
    if waiting is not None:
        state = {"waiting": {"reason": waiting}}
    elif started is not None:
        state = {"running": {"startedAt": moment(started)}}
    readiness = {"type": "Ready", "status": "False" if ready is None else "True"}
    readiness["lastTransitionTime"] = moment(created if ready is None else ready)
    return {
        "metadata": meta,
        "status": {
            "phase": phase,
            "conditions": [{"type": "PodScheduled", "status": "True"}, readiness],
            "containerStatuses": [
                {"name": "sidecar", "state": {"running": {"startedAt": moment(created)}}},
                {"name": WORKER, "state": state, "restartCount": restarts},
            ],
            **status,
        },
    }
