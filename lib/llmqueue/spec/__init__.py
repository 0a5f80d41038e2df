"""The LLMQueue resource, llmqueue.dev/v1alpha1: read, checked, and turned into what runs.

The CRD in crds/ is the source of truth; a test holds these models to it, field by field.
"""

from __future__ import annotations

from llmqueue.spec.convert import (
    budget_config,
    budget_id,
    differing_limits,
    queue_config,
    queue_id,
)
from llmqueue.spec.environment import worker_environment
from llmqueue.spec.manifests import load_manifests
from llmqueue.spec.resource import API_VERSION, KIND, LLMQueue, LLMQueueSpec
from llmqueue.spec.unserved import unserved_fields

__all__ = [
    "API_VERSION",
    "KIND",
    "LLMQueue",
    "LLMQueueSpec",
    "budget_config",
    "budget_id",
    "differing_limits",
    "load_manifests",
    "queue_config",
    "queue_id",
    "unserved_fields",
    "worker_environment",
]
