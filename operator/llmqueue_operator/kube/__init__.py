"""The only place that talks to Kubernetes."""

from __future__ import annotations

from llmqueue_operator.kube.client import KubeClient
from llmqueue_operator.kube.cluster import Cluster
from llmqueue_operator.kube.kinds import DEPLOYMENTS, EVENTS, LEASES, LLMQUEUES, PODS, Kind

__all__ = [
    "DEPLOYMENTS",
    "EVENTS",
    "LEASES",
    "LLMQUEUES",
    "PODS",
    "Cluster",
    "Kind",
    "KubeClient",
]
