"""LLMQueue manifests on disk → what local mode runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from llmqueue.credentials import fingerprint
from llmqueue.spec import (
    LLMQueue,
    budget_config,
    budget_id,
    differing_limits,
    load_manifests,
    queue_config,
    queue_id,
    unserved_fields,
    worker_environment,
)
from llmqueue_cli.local.credentials import Credentials, write_key
from llmqueue_cli.local.deployment import LocalGroup, LocalQueue
from llmqueue_cli.local.journal import Journal
from llmqueue_cli.local.processes import WorkerKind
from llmqueue_operator.planning.spec import scaling_spec

LogLevel = Literal["debug", "info", "warning", "error"]
_LEVELS: dict[str, LogLevel] = {
    "debug": "debug",
    "info": "info",
    "warning": "warning",
    "error": "error",
}
LOG_LEVEL_VARIABLE = "LLMQUEUE_LOG_LEVEL"

Signature = tuple[tuple[str, int, int], ...]


def _unchanged(queue: LLMQueue) -> LLMQueue:
    return queue


@dataclass
class Sources:
    """The files that `up` was given, and all it takes to turn them into groups.

    `amend` changes a resource in memory after it was read. `changed` tells whether files differ
    from those that `load` read last.
    """

    files: Sequence[Path]
    credentials: Credentials
    redis_url: str
    run_folder: Path
    journal: Journal
    log_format: Literal["json", "console"] = "console"
    amend: Callable[[LLMQueue], LLMQueue] = _unchanged
    worker_log: Path | None = None
    _read: Signature = ()
    _noted: set[str] = field(default_factory=set[str])

    def load(self) -> tuple[LocalGroup, ...]:
        """Read all files. Raises InvalidResource, or UsageError where a key is missing."""
        self._read = self._signature()
        queues = [self.amend(queue) for queue in load_manifests(self.files, note=self._note)]
        members: dict[str, list[LLMQueue]] = {}
        for queue in queues:
            members.setdefault(budget_id(queue), []).append(queue)
            for path in unserved_fields(queue):
                self._note(f"{queue_id(queue)}: {path} has no effect in this version")
        for budget, group in members.items():
            if differing := differing_limits(group):
                self._note(
                    f"the members of {budget} declare different limits ({', '.join(differing)}):"
                    " the lowest counts"
                )
        return tuple(
            LocalGroup(budget_config(group), tuple(self._local(queue) for queue in group))
            for group in members.values()
        )

    def changed(self) -> bool:
        return self._signature() != self._read

    def _signature(self) -> Signature:
        watched = [*self.files, *([self.credentials.file] if self.credentials.file else [])]
        found: list[tuple[str, int, int]] = []
        for path in watched:
            try:
                status = path.stat()
            except OSError:
                # A file being replaced is away for a moment: that is no change by itself.
                found += [entry for entry in self._read if entry[0] == str(path)]
                continue
            found.append((str(path), status.st_mtime_ns, status.st_size))
        return tuple(found)

    def _note(self, text: str) -> None:
        if text not in self._noted:
            self._noted.add(text)
            self.journal.say("manifest-note", text)

    def _local(self, queue: LLMQueue) -> LocalQueue:
        grace, provider = queue.spec.grace_periods, queue.spec.provider
        name, secret = queue_id(queue), provider.credentials_secret_ref
        key = self.credentials.key(name, provider.type, secret.name if secret else None)
        key_file = write_key(self.run_folder.resolve(), name, key) if key else None
        return LocalQueue(
            config=queue_config(queue),
            scaling=scaling_spec(queue),
            credential=fingerprint(key),
            workers=WorkerKind(
                queue=name,
                environment=worker_environment(
                    queue,
                    redis_url=self.redis_url,
                    api_key_file=key_file,
                    worker_uid=None,
                    health_port=None,
                    log_level=_LEVELS.get(os.environ.get(LOG_LEVEL_VARIABLE, ""), "warning"),
                    log_format=self.log_format,
                ),
                grace_seconds=grace.drain_seconds + grace.shutdown_margin_seconds,
                log_file=self.worker_log,
            ),
        )
