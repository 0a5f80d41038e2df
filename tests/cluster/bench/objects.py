"""Manifests of what the tests run beside LLMQueues."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from cluster.bench.given import IMAGES, PULL_POLICY

Object = dict[str, Any]
MANIFESTS = Path(__file__).resolve().parents[3] / "manifests"
RESTRICTED = {
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "seccompProfile": {"type": "RuntimeDefault"},
}
CONTAINER = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def namespace(name: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": name,
            "labels": {"pod-security.kubernetes.io/enforce": "restricted"},
        },
    }


def pod(name: str, command: list[str], port: int, *, entry: list[str] | None = None) -> Object:
    """A pod of the testbed image that listens on a port."""
    container: Object = {
        "name": name,
        "image": f"{IMAGES}/testbed:dev",
        "imagePullPolicy": PULL_POLICY,
        "args": command,
        "ports": [{"containerPort": port}],
        "readinessProbe": {"tcpSocket": {"port": port}, "periodSeconds": 1},
        "securityContext": CONTAINER,
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    if entry is not None:
        container["command"] = entry
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "securityContext": {**RESTRICTED, "fsGroup": 65532},
            "terminationGracePeriodSeconds": 2,
            "automountServiceAccountToken": False,
            "containers": [container],
            "volumes": [{"name": "data", "emptyDir": {}}],
        },
    }


def service(name: str, port: int) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": {"app": name}, "ports": [{"port": port}]},
    }


def operator(
    namespace: str, *, redis_url: str, replicas: int, environment: Mapping[str, str]
) -> Iterator[Object]:
    """The shipped manifests, with the images of this cluster."""
    for file in ("rbac.yaml", "connection.yaml", "operator.yaml"):
        for document in yaml.safe_load_all((MANIFESTS / file).read_text()):
            document["metadata"]["namespace"] = namespace
            match document["kind"]:
                case "RoleBinding":
                    document["subjects"][0]["namespace"] = namespace
                case "Secret":
                    document["stringData"]["url"] = redis_url
                case "Deployment":
                    _adapt(document, replicas, environment)
            yield document


def _adapt(deployment: Object, replicas: int, environment: Mapping[str, str]) -> None:
    deployment["spec"]["replicas"] = replicas
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    container["image"], container["imagePullPolicy"] = f"{IMAGES}/operator:dev", PULL_POLICY
    values = {
        "LLMQUEUE_OPERATOR_WORKER_IMAGE": f"{IMAGES}/worker:dev",
        "LLMQUEUE_OPERATOR_WORKER_PULL_POLICY": PULL_POLICY,
        **environment,
    }
    kept = [each for each in container["env"] if each["name"] not in values]
    container["env"] = kept + [{"name": n, "value": v} for n, v in values.items()]
