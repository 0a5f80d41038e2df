"""Settings of the operator, from environment variables with the prefix LLMQUEUE_OPERATOR_."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class OperatorSettings(BaseSettings):
    """One replica of the operator."""

    model_config = SettingsConfigDict(env_prefix="LLMQUEUE_OPERATOR_", extra="ignore", frozen=True)

    namespace: str = Field(min_length=1)
    """Where the operator itself runs."""
    pod: str = Field(min_length=1)
    """Its name, unique among replicas."""
    watch: Literal["Namespace", "Cluster"] = "Namespace"
    """Whose LLMQueues are served: those of its own namespace, or all."""
    installation: str = Field(default="llmqueue", min_length=1)
    """Name of the installation: its replicas take turns, two installations refuse each other."""
    worker_image: str = Field(min_length=1)
    """Image of workers whose LLMQueue names none."""
    worker_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    """When the kubelet pulls the workers' images."""
    worker_log_level: Literal["debug", "info", "warning", "error"] = "info"
    """How much workers log."""
    connections_dir: Path = Path("/etc/llmqueue/connections")
    """A folder for each Redis connection, named like it."""
    health_port: int = Field(default=8080, ge=0, le=65535)
    """Port of /livez, /readyz and /metrics."""
    resync_seconds: float = Field(default=300, gt=0)
    """Seconds between two full lists of what is watched."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """How much the operator logs."""
    log_format: Literal["json", "console"] = "json"
    """One JSON object a line, or text for people."""

    @property
    def watched(self) -> str | None:
        """The namespace that is looked at; None = all."""
        return None if self.watch == "Cluster" else self.namespace
