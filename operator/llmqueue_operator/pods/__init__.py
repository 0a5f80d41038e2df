"""The worker Deployment of an LLMQueue. Pure."""

from __future__ import annotations

from llmqueue_operator.pods.deployment import worker_deployment
from llmqueue_operator.pods.redis import WorkerRedis

__all__ = ["WorkerRedis", "worker_deployment"]
