"""Redis connections by name, each a folder that a Secret is mounted to.

<connections_dir>/<name>/url                 what the operator connects to
<connections_dir>/<name>/worker-url          what workers are given instead, without a password
<connections_dir>/<name>/worker-secret-name  Secret in each queue's namespace with their URL
<connections_dir>/<name>/worker-secret-key   its key, `url` where this file is absent
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import structlog

from llmqueue.errors import StoreError, UsageError
from llmqueue.spec import LLMQueue
from llmqueue.store import RedisStore, carries_credentials, connect
from llmqueue_operator.errors import UnusableConnection
from llmqueue_operator.pods import WorkerRedis

_log = structlog.get_logger()


@dataclass(slots=True)
class _Open:
    url: str
    store: RedisStore


class Connections:
    """Opens each connection once; a changed URL is opened anew."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: dict[str, _Open] = {}

    async def store(self, name: str) -> RedisStore:
        """Raises UnusableConnection, StoreError."""
        url = self._url(name)
        known = self._open.get(name)
        if known is not None and known.url == url:
            return known.store
        store = await connect(url, warn=partial(_warn, name))
        known = self._open.get(name)
        if known is not None and known.url == url:  # somebody else was as fast
            await store.close()
            return known.store
        self._open[name] = _Open(url, store)
        if known is not None:
            await known.store.close()
        return store

    def names(self) -> list[str]:
        """Of all connections in the settings. A mounted Secret's own folders begin with dots."""
        try:
            found = [path for path in self._folder.iterdir() if (path / "url").is_file()]
        except OSError:
            return []
        return sorted(path.name for path in found if not path.name.startswith("."))

    def worker_redis(self, queue: LLMQueue) -> WorkerRedis:
        """What the queue's workers are given. Raises UnusableConnection."""
        spec = queue.spec.redis
        if spec.worker_secret_ref is not None:
            return WorkerRedis(secret=spec.worker_secret_ref.name, key=spec.worker_secret_ref.key)
        secret = self._read(spec.connection, "worker-secret-name")
        if secret:
            key = self._read(spec.connection, "worker-secret-key") or "url"
            return WorkerRedis(secret=secret, key=key)
        url = self._read(spec.connection, "worker-url") or self._url(spec.connection)
        if _has_password(spec.connection, url):
            raise UnusableConnection(
                f"spec.redis: connection {spec.connection} has a password, which is not written"
                " into pods: name a Secret of this namespace in spec.redis.workerSecretRef"
            )
        return WorkerRedis(url=url)

    def _url(self, name: str) -> str:
        url = self._read(name, "url")
        if not url:
            raise UnusableConnection(
                f"spec.redis.connection: {name} is not in the operator's settings"
            )
        _has_password(name, url)
        return url

    def _read(self, name: str, file: str) -> str:
        try:
            return (self._folder / name / file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            return ""

    async def close(self) -> None:
        for each in self._open.values():
            try:
                await each.store.close()
            except StoreError:
                continue
        self._open.clear()


def _warn(connection: str, text: str) -> None:
    _log.warning("store-warning", connection=connection, message=text)


def _has_password(name: str, url: str) -> bool:
    """Raises UnusableConnection for what is no URL, without it: it may hold a password."""
    try:
        return carries_credentials(url)
    except UsageError:
        raise UnusableConnection(
            f"spec.redis.connection: the URL of {name} in the operator's settings is none"
        ) from None
