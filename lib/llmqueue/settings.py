"""Settings of processes, from environment variables with the prefix LLMQUEUE_.

The worker's are written by whoever starts it (operator: pod template; `llmqueue up`: child
environment); none carries a credential, only the path of the file that holds one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from llmqueue.errors import UsageError
from llmqueue.states import ProviderType


class WorkerSettings(BaseSettings):
    """One worker process."""

    model_config = SettingsConfigDict(env_prefix="LLMQUEUE_", extra="ignore", frozen=True)

    redis_url: str = Field(default="", repr=False)
    redis_url_file: Path | None = None
    """File that holds the URL, where it has a password; used where `redis_url` is empty."""
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
    connect_seconds: float = Field(default=10, gt=0)
    request_seconds: float = Field(default=120, gt=0)
    stream_idle_seconds: float = Field(default=60, gt=0)
    attempt_seconds: float = Field(default=240, gt=0)
    lease_seconds: float = Field(default=10, gt=0)
    """As the budget's configuration has it: leases are renewed in time for it."""
    drain_seconds: float = Field(default=300, gt=0)
    handlers: str = ""
    """Module with the handlers, as its attribute `app`; "" = payloads only."""
    max_jobs: int = Field(default=0, ge=0)
    max_seconds: float = Field(default=0, ge=0)
    max_memory_mib: int = Field(default=512, ge=0)
    health_port: int | None = Field(default=None, ge=0, le=65535)
    """/livez, /readyz, /metrics; None = no server."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["json", "console"] = "json"

    @model_validator(mode="after")
    def _know_the_store(self) -> Self:
        if not self.redis_url and self.redis_url_file is None:
            raise ValueError("LLMQUEUE_REDIS_URL or LLMQUEUE_REDIS_URL_FILE is needed")
        return self

    def store_url(self) -> str:
        """The Redis URL as it is now. Raises UsageError where its file can't be read."""
        if self.redis_url or self.redis_url_file is None:
            return self.redis_url
        try:
            return self.redis_url_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as exc:
            raise UsageError(f"{self.redis_url_file}: cannot be read: {exc}") from exc

    def call_seconds(self, asked: float | None) -> float:
        """How long a call may take: `asked` by its job within an attempt's time, else the queue's.

        Enqueue refuses more; a job may be older than the queue's present time.
        """
        return min(asked, self.attempt_seconds) if asked else self.request_seconds
