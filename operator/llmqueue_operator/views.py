"""What of the objects in the cluster matters: raw objects → small, frozen views. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from llmqueue.documents import object_at, objects_at
from llmqueue.spec import LLMQueue
from llmqueue.spec.explain import explain
from llmqueue_operator.names import (
    DELETION_COST,
    DIGEST_ANNOTATION,
    MANAGER,
    QUEUE_LABEL,
    SCALER,
    TEMPLATE_HASH_LABEL,
    WORKER,
)
from llmqueue_operator.planning import PodPhase, PodView

_ENDED = ("Failed", "Succeeded")
_BROKEN = frozenset(
    {
        "CrashLoopBackOff",
        "CreateContainerConfigError",
        "CreateContainerError",
        "ErrImageNeverPull",
        "ErrImagePull",
        "ImageInspectError",
        "ImagePullBackOff",
        "InvalidImageName",
        "RunContainerError",
    }
)
_CRASHES = 2
"""A container that was restarted so often and is not ready is failing, also while it runs."""

Object = Mapping[str, Any]


def worker_key(raw: Object) -> str:
    """ "<namespace>/<LLMQueue>" of a Deployment or pod, by its label."""
    meta = raw["metadata"]
    return f"{meta['namespace']}/{object_at(meta, 'labels').get(QUEUE_LABEL, '')}"


def instant(text: str | None) -> float | None:
    """RFC 3339 → Unix seconds."""
    return datetime.fromisoformat(text).timestamp() if text else None


@dataclass(frozen=True, slots=True)
class QueueView:
    """An LLMQueue. `resource` None: it cannot be read, `problem` says why."""

    key: str
    uid: str
    version: str
    generation: int
    deleting: bool
    resource: LLMQueue | None
    problem: str
    status: Object
    """As the server has it: the writer compares with it."""
    created_at: float


def queue_view(raw: Object) -> QueueView:
    meta = raw["metadata"]
    resource, problem = None, ""
    try:
        resource = LLMQueue.model_validate(
            {
                "apiVersion": "llmqueue.dev/v1alpha1",
                "kind": "LLMQueue",
                "metadata": meta,
                "spec": raw["spec"],
            }
        )
    except ValidationError as exc:
        problem = "; ".join(explain(exc))
    return QueueView(
        key=f"{meta['namespace']}/{meta['name']}",
        uid=meta["uid"],
        version=meta["resourceVersion"],
        generation=meta.get("generation", 0),
        deleting="deletionTimestamp" in meta,
        resource=resource,
        problem=problem,
        status=object_at(raw, "status"),
        created_at=instant(meta["creationTimestamp"]) or 0.0,
    )


@dataclass(frozen=True, slots=True)
class DeploymentView:
    """`owner` = uid of the LLMQueue that controls it, "" for none."""

    key: str
    name: str
    uid: str
    version: str
    generation: int
    deleting: bool
    owner: str
    replicas: int
    applied: str
    """Digest of what was applied last; "" unless the scaler was left with the replicas alone."""
    foreign_scalers: tuple[str, ...]
    """Other managers that own spec.replicas."""
    overdue: bool
    """Its rollout is past its progress deadline."""
    foreign_editors: tuple[str, ...] = ()
    """Other managers that own something of its template."""
    owner_kind: str = ""
    failure: str = ""
    """Why its pods can't be created, in the server's words."""


def deployment_view(raw: Object) -> DeploymentView:
    meta = raw["metadata"]
    managed = objects_at(meta, "managedFields")
    owner = _named(objects_at(meta, "ownerReferences"), "controller", True)
    complete = any(entry.get("manager") == MANAGER for entry in managed) and not any(
        entry.get("manager") == SCALER and "f:template" in object_at(entry, "fieldsV1", "f:spec")
        for entry in managed
    )
    return DeploymentView(
        key=worker_key(raw),
        name=meta["name"],
        uid=meta["uid"],
        version=meta["resourceVersion"],
        generation=meta.get("generation", 0),
        deleting="deletionTimestamp" in meta,
        owner=str(owner.get("uid", "")),
        owner_kind=str(owner.get("kind", "")),
        failure=_failure(raw),
        replicas=raw["spec"].get("replicas", 1),
        applied=object_at(meta, "annotations").get(DIGEST_ANNOTATION, "") if complete else "",
        foreign_scalers=_owners(managed, "f:replicas", but=(SCALER,)),
        foreign_editors=_owners(managed, "f:template", but=(SCALER, MANAGER)),
        overdue=any(
            c.get("type") == "Progressing" and c.get("reason") == "ProgressDeadlineExceeded"
            for c in objects_at(raw, "status", "conditions")
        ),
    )


def _failure(raw: Object) -> str:
    for condition in objects_at(raw, "status", "conditions"):
        if condition.get("type") == "ReplicaFailure" and condition.get("status") == "True":
            return str(condition.get("message", ""))
    return ""


def _owners(managed: Sequence[Object], field: str, *, but: tuple[str, ...]) -> tuple[str, ...]:
    """Managers of a field of the spec."""
    names = {
        str(entry.get("manager", "?"))
        for entry in managed
        if field in object_at(entry, "fieldsV1", "f:spec")
    }
    return tuple(sorted(names - set(but)))


@dataclass(frozen=True, slots=True)
class PodState:
    """A worker's pod."""

    key: str
    name: str
    uid: str
    version: str
    phase: PodPhase
    ready: bool
    created_at: float
    started_at: float | None
    """When its container began to run."""
    ready_at: float | None
    deletion_cost: int
    template: str
    trouble: str
    """Why it is FAILED, in the kubelet's word."""
    waiting: str = ""
    """What it waits for while it is PENDING, as far as it is known."""

    def view(self, now: float) -> PodView:
        """As the planner sees it; `now` in Unix seconds."""
        since = self.created_at if self.started_at is None else self.started_at
        return PodView(
            uid=self.uid,
            name=self.name,
            phase=self.phase,
            age_seconds=max(0.0, now - since),
            ready=self.ready,
        )


def pod_state(raw: Object) -> PodState | None:
    """None for a pod that has ended: its ReplicaSet does not count it either."""
    meta, status = raw["metadata"], object_at(raw, "status")
    if status.get("phase") in _ENDED and "deletionTimestamp" not in meta:
        return None
    ready = _named(objects_at(status, "conditions"), "type", "Ready")
    is_ready = ready.get("status") == "True"
    containers = objects_at(status, "containerStatuses")
    worker = _named(containers, "name", WORKER)
    started = object_at(worker, "state", "running").get("startedAt")
    trouble = _trouble(status, is_ready)
    return PodState(
        key=worker_key(raw),
        name=meta["name"],
        uid=meta["uid"],
        version=meta["resourceVersion"],
        phase=_phase(meta, trouble, is_running=started is not None),
        ready=is_ready,
        created_at=instant(meta["creationTimestamp"]) or 0.0,
        started_at=instant(started),
        ready_at=instant(ready.get("lastTransitionTime")) if is_ready else None,
        deletion_cost=_cost(meta),
        template=object_at(meta, "labels").get(TEMPLATE_HASH_LABEL, ""),
        trouble=trouble,
        waiting=_waiting(status, worker),
    )


def _named(items: Sequence[dict[str, Any]], field: str, value: str | bool) -> dict[str, Any]:
    """The first item with this value; an empty one where there is none."""
    for item in items:
        if item.get(field) == value:
            return item
    return {}


def _trouble(status: Object, is_ready: bool) -> str:
    for container in (
        *objects_at(status, "initContainerStatuses"),
        *objects_at(status, "containerStatuses"),
    ):
        reason = str(object_at(container, "state", "waiting").get("reason", ""))
        if reason in _BROKEN:
            return reason
        if container.get("restartCount", 0) >= _CRASHES and not is_ready:
            return "CrashLoopBackOff"
    return ""


def _waiting(status: Object, worker: Object) -> str:
    scheduled = _named(objects_at(status, "conditions"), "type", "PodScheduled")
    if scheduled.get("status") == "False":
        return str(scheduled.get("message", ""))
    state = object_at(worker, "state", "waiting")
    return str(state.get("message") or state.get("reason") or "")


def _phase(meta: Object, trouble: str, *, is_running: bool) -> PodPhase:
    if "deletionTimestamp" in meta:
        return PodPhase.TERMINATING
    if trouble:
        return PodPhase.FAILED
    return PodPhase.RUNNING if is_running else PodPhase.PENDING


def _cost(meta: Object) -> int:
    try:
        return int(object_at(meta, "annotations").get(DELETION_COST, "0"))
    except ValueError:
        return 0
