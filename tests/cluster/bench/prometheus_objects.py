"""Manifests of Prometheus and its operator, for one namespace under restricted pod security."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cluster.bench.given import IMAGES, PULL_POLICY
from cluster.bench.objects import CONTAINER, RESTRICTED, Object

IMAGE = f"{IMAGES}/prometheus:dev"
NAME = "prometheus"
OPERATOR = "prometheus-operator"
PORT = 9090
_VERSION = "v3.15.1"
"""For which the operator writes settings and options; go.mod calls it v0.315.1."""
_READ = ["get", "list", "watch"]
_OPERATOR_RULES = [
    {"apiGroups": [""], "resources": ["namespaces"], "verbs": _READ},
    {"apiGroups": ["monitoring.coreos.com"], "resources": ["*"], "verbs": ["*"]},
    {"apiGroups": ["apps"], "resources": ["statefulsets"], "verbs": ["*"]},
    {"apiGroups": [""], "resources": ["configmaps", "secrets"], "verbs": ["*"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "delete"]},
    {
        "apiGroups": [""],
        "resources": ["services", "services/finalizers", "endpoints"],
        "verbs": ["get", "create", "update", "delete"],
    },
    {"apiGroups": [""], "resources": ["events"], "verbs": ["patch", "create"]},
]
_SCRAPE_RULES = [
    {"apiGroups": [""], "resources": ["pods", "services", "endpoints"], "verbs": _READ},
    {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": _READ},
]


def operator(namespace: str) -> Iterator[Object]:
    """One that looks after this namespace only: each test has its own."""
    yield from _account(OPERATOR, namespace, _OPERATOR_RULES)
    labels = {"app": OPERATOR}
    container: Object = {
        "name": OPERATOR,
        "image": IMAGE,
        "imagePullPolicy": PULL_POLICY,
        "command": ["/bin/prometheus-operator"],
        "args": [
            f"--namespaces={namespace}",
            f"--prometheus-config-reloader={IMAGE}",
            # A rule that was changed is loaded in seconds; its default starves it.
            "--config-reloader-cpu-limit=0",
        ],
        "securityContext": CONTAINER,
    }
    yield {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": OPERATOR},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "serviceAccountName": OPERATOR,
                    "securityContext": RESTRICTED,
                    "terminationGracePeriodSeconds": 2,
                    "containers": [container],
                },
            },
        },
    }


def prometheus(namespace: str, *, interval_seconds: int, selector: Object) -> Iterator[Object]:
    """`selector` is that of monitors and rules, all of the namespace."""
    yield from _account(NAME, namespace, _SCRAPE_RULES)
    interval = f"{interval_seconds}s"
    yield {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "Prometheus",
        "metadata": {"name": NAME},
        "spec": {
            "replicas": 1,
            "version": _VERSION,
            "image": IMAGE,
            "imagePullPolicy": PULL_POLICY,
            "serviceAccountName": NAME,
            "podMonitorSelector": selector,
            "serviceMonitorSelector": selector,
            "ruleSelector": selector,
            "scrapeInterval": interval,
            "scrapeTimeout": interval,
            "evaluationInterval": interval,
            "securityContext": {**RESTRICTED, "fsGroup": 65532},
            "resources": {"requests": {"memory": "64Mi"}},
        },
    }
    yield {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": NAME},
        "spec": {
            "selector": {"prometheus": NAME},
            "ports": [{"port": PORT}],
            "publishNotReadyAddresses": True,  # its first probe comes late
        },
    }


def _account(name: str, namespace: str, rules: list[dict[str, Any]]) -> Iterator[Object]:
    rbac = "rbac.authorization.k8s.io"
    yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
    yield {
        "apiVersion": f"{rbac}/v1",
        "kind": "Role",
        "metadata": {"name": name},
        "rules": rules,
    }
    yield {
        "apiVersion": f"{rbac}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": rbac, "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
    }
