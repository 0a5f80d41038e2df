"""Where a queue's workers find their Redis."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

MOUNT = PurePosixPath("/var/run/llmqueue/redis")
FILE = "url"


@dataclass(frozen=True, slots=True)
class WorkerRedis:
    """Either a Secret's key that holds the URL, or a URL that holds no password."""

    url: str = ""
    secret: str = ""
    key: str = ""

    @property
    def environment(self) -> dict[str, str]:
        if self.secret:
            return {"LLMQUEUE_REDIS_URL_FILE": str(MOUNT / FILE)}
        return {"LLMQUEUE_REDIS_URL": self.url}

    @property
    def volumes(self) -> list[dict[str, Any]]:
        if not self.secret:
            return []
        items = [{"key": self.key, "path": FILE}]
        return [{"name": "redis", "secret": {"secretName": self.secret, "items": items}}]

    @property
    def mounts(self) -> list[dict[str, Any]]:
        if not self.secret:
            return []
        return [{"name": "redis", "mountPath": str(MOUNT), "readOnly": True}]
