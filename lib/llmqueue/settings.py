"""Settings of processes, from environment variables with the prefix LLMQUEUE_.

The worker's are written by whoever starts it (operator: pod template; `llmqueue up`: child
environment); none carries a credential, only the path of the file that holds one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from llmqueue.states import ProviderType


class WorkerSettings(BaseSettings):
    """One worker process."""

    model_config = SettingsConfigDict(env_prefix="LLMQUEUE_", extra="ignore", frozen=True)

    redis_url: str = Field(repr=False)
    queue: str
    """ "<namespace>/<name>" """
    worker_uid: str
    """Pod uid, or a local stand-in; a start nonce is added by the process."""
    provider: ProviderType
    base_url: str
    api_key_file: Path | None = None
    """Read again when it changes; None = the provider needs no key."""
    idempotency: Literal["None", "Honoured"] = "None"
    slots: int = Field(default=8, ge=1, le=1000)
    default_max_output_tokens: int = Field(default=4096, ge=1)
    connect_seconds: float = Field(default=10, gt=0)
    request_seconds: float = Field(default=120, gt=0)
    stream_idle_seconds: float = Field(default=60, gt=0)
    attempt_seconds: float = Field(default=240, gt=0)
    lease_seconds: float = Field(default=10, gt=0)
    """As the budget's configuration has it: leases are renewed in time for it."""
    drain_seconds: float = Field(default=300, gt=0)
    max_jobs: int = Field(default=0, ge=0)
    max_seconds: float = Field(default=0, ge=0)
    max_memory_mib: int = Field(default=512, ge=0)
    health_port: int | None = Field(default=None, ge=0, le=65535)
    """/livez, /readyz, /metrics; None = no server."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["json", "console"] = "json"

    def call_seconds(self, asked: float | None) -> float:
        """How long a call may take: `asked` by its job within an attempt's time, else the queue's.

        Enqueue refuses more; a job may be older than the queue's present time.
        """
        return min(asked, self.attempt_seconds) if asked else self.request_seconds
