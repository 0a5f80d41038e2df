"""Labels, annotations, managers and names that the operator puts on objects."""

from __future__ import annotations

MANAGER = "llmqueue"
"""Field manager of everything but the replicas."""
SCALER = "llmqueue-scaler"
"""Field manager of spec.replicas: another writer of that field shows as a conflict."""

QUEUE_LABEL = "llmqueue.dev/queue"
"""Name of the LLMQueue, on its Deployment and its pods."""
DIGEST_ANNOTATION = "llmqueue.dev/applied"
"""Digest of the document that was applied last, on the Deployment."""
INSTALLATION_ANNOTATION = "llmqueue.dev/installation"
"""Which installation's operators share a Lease."""
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
TEMPLATE_HASH_LABEL = "pod-template-hash"
"""The Deployment controller's, on pods."""

WORKER = "worker"
"""Name of the worker's container."""


def deployment_name(queue: str) -> str:
    """Of the LLMQueue with this name."""
    return f"{queue}-worker"
