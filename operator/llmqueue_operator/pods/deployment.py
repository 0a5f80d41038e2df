"""LLMQueue → the Deployment of its workers, without replicas."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path, PurePosixPath
from typing import Any

from llmqueue.documents import object_at
from llmqueue.spec import API_VERSION, KIND, LLMQueue, worker_environment
from llmqueue_operator.names import DIGEST_ANNOTATION, QUEUE_LABEL, WORKER, deployment_name
from llmqueue_operator.pods.merge import merged
from llmqueue_operator.pods.redis import WorkerRedis

HEALTH_PORT = 8080
_USER = 65532
_KEY_MOUNT = PurePosixPath("/var/run/llmqueue/credentials")
_KEY_FILE = "api-key"
_PROGRESS_SECONDS = 600
_HISTORY = 2
_SURGE_SHARE = 4
"""A rollout adds at most a fourth of maxReplicas on top."""

Object = dict[str, Any]


def worker_deployment(
    queue: LLMQueue,
    *,
    image: str,
    pull_policy: str,
    redis: WorkerRedis,
    log_level: str = "info",
) -> Object:
    """The whole object; its annotation holds the digest of the rest.

    `image` is used where the resource names none. Only what a rollout must follow is in the pod
    template: limits, retries and scaling reach workers through the store.
    """
    meta, labels = queue.metadata, _labels(queue)
    document: Object = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": deployment_name(meta.name),
            "namespace": meta.namespace,
            "labels": labels,
            "ownerReferences": [
                {
                    "apiVersion": API_VERSION,
                    "kind": KIND,
                    "name": meta.name,
                    "uid": meta.uid,
                    "controller": True,
                    # True would ask for a right on finalizers, and nothing here needs it.
                    "blockOwnerDeletion": False,
                }
            ],
        },
        "spec": {
            "selector": {"matchLabels": {QUEUE_LABEL: meta.name}},
            "revisionHistoryLimit": _HISTORY,
            "progressDeadlineSeconds": _PROGRESS_SECONDS,
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {
                    # Numbers: of a percentage the share depends on the replicas of the moment.
                    "maxSurge": max(1, math.ceil(queue.spec.scaling.max_replicas / _SURGE_SHARE)),
                    "maxUnavailable": 0,
                },
            },
            "template": _template(queue, image, pull_policy, redis, log_level),
        },
    }
    document["metadata"]["annotations"] = {DIGEST_ANNOTATION: digest(document)}
    return document


def digest(document: Object) -> str:
    """Of the content, whatever the order of fields."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _labels(queue: LLMQueue) -> dict[str, str]:
    return {
        "app.kubernetes.io/name": "llmqueue-worker",
        "app.kubernetes.io/instance": queue.metadata.name,
        "app.kubernetes.io/component": WORKER,
        "app.kubernetes.io/managed-by": "llmqueue",
        QUEUE_LABEL: queue.metadata.name,
    }


def _template(
    queue: LLMQueue, image: str, pull_policy: str, redis: WorkerRedis, log_level: str
) -> Object:
    grace, template = queue.spec.grace_periods, queue.spec.worker.pod_template
    ours: Object = {
        "metadata": {"labels": _labels(queue)},
        "spec": {
            "terminationGracePeriodSeconds": grace.drain_seconds + grace.shutdown_margin_seconds,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": _USER,
                "runAsGroup": _USER,
                "fsGroup": _USER,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [_container(queue, image, pull_policy, redis, log_level)],
            "volumes": [
                {"name": "tmp", "emptyDir": {}},
                *_credential_volumes(queue),
                *redis.volumes,
            ],
        },
    }
    if template is None:
        return ours
    theirs = template.model_dump(by_alias=True, exclude_unset=True, mode="json")
    both: Object = merged(ours, theirs)
    # What selects the pods is not the user's to change.
    labels = {**object_at(both, "metadata", "labels"), **_labels(queue)}
    both["metadata"] = {**object_at(both, "metadata"), "labels": labels}
    return both


def _container(
    queue: LLMQueue, image: str, pull_policy: str, redis: WorkerRedis, log_level: str
) -> Object:
    worker = queue.spec.worker
    container: Object = {
        "name": WORKER,
        "image": worker.image or image,
        "imagePullPolicy": pull_policy,
        "env": [*_environment(queue, redis, log_level), *_own_environment(queue)],
        "ports": [{"name": "metrics", "containerPort": HEALTH_PORT, "protocol": "TCP"}],
        # Many that start at once on a small node are slow: they must not be killed for it.
        "startupProbe": {
            **_probe("/livez"),
            "periodSeconds": 2,
            "failureThreshold": 90,
            "timeoutSeconds": 5,
        },
        "livenessProbe": {
            **_probe("/livez"),
            "periodSeconds": 10,
            "failureThreshold": 3,
            "timeoutSeconds": 5,
        },
        "readinessProbe": {
            **_probe("/readyz"),
            "periodSeconds": 2,
            "failureThreshold": 3,
            "timeoutSeconds": 5,
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - the pod's own
            *_credential_mounts(queue),
            *redis.mounts,
        ],
    }
    if worker.resources is not None:
        container["resources"] = worker.resources.model_dump(by_alias=True, exclude_none=True)
    return container


def _probe(path: str) -> Object:
    return {"httpGet": {"path": path, "port": "metrics"}}


def _environment(queue: LLMQueue, redis: WorkerRedis, log_level: str) -> list[Object]:
    has_key = queue.spec.provider.credentials_secret_ref is not None
    values = worker_environment(
        queue,
        redis_url=None,
        api_key_file=Path(_KEY_MOUNT / _KEY_FILE) if has_key else None,
        worker_uid=None,
        health_port=HEALTH_PORT,
        log_level=log_level,  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    )
    uid = {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.uid"}}
    return [
        *(
            {"name": name, "value": value}
            for name, value in {**values, **redis.environment}.items()
        ),
        {"name": "LLMQUEUE_WORKER_UID", "valueFrom": uid},
    ]


def _own_environment(queue: LLMQueue) -> list[Object]:
    return [
        each.model_dump(by_alias=True, exclude_none=True, mode="json")
        for each in queue.spec.worker.env
    ]


def _credential_volumes(queue: LLMQueue) -> list[Object]:
    ref = queue.spec.provider.credentials_secret_ref
    if ref is None:
        return []
    items = [{"key": ref.key, "path": _KEY_FILE}]
    return [{"name": "credentials", "secret": {"secretName": ref.name, "items": items}}]


def _credential_mounts(queue: LLMQueue) -> list[Object]:
    if queue.spec.provider.credentials_secret_ref is None:
        return []
    # The whole folder: a file mounted by subPath would never change.
    return [{"name": "credentials", "mountPath": str(_KEY_MOUNT), "readOnly": True}]
