"""Batches: jobs of one queue that are counted together, and what follows their end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from llmqueue.job import NewJob

Follower = Literal["then", "catch", "finally"]
"""`catch`: more jobs failed than allowed. `then`: all ended, and not more failed than allowed.
`finally`: all ended."""

BatchState = Literal["open", "running", "succeeded", "failed"]
"""`open`: its producer may still add jobs, so it can't end."""


@dataclass(frozen=True, slots=True)
class NewBatch:
    """A batch as its producer begins it.

    `allowed_failures` None = any number. Jobs that end dead, cancelled or expired have failed.
    `followers` are stored with it and enqueued, each once, by the script that ends the job they
    follow on.
    """

    id: str
    queue: str
    name: str = ""
    allowed_failures: int | None = 0
    followers: Mapping[Follower, NewJob] = field(default_factory=dict[Follower, NewJob])


@dataclass(frozen=True, slots=True)
class BatchView:
    """What is known of a batch. `pending` jobs have not ended; those in review are among them.

    Times are Unix seconds. `cancelled`: it was asked to be; running calls may still end.
    """

    id: str
    queue: str
    name: str
    state: BatchState
    total: int
    pending: int
    succeeded: int
    failed: int
    allowed_failures: int | None
    sealed: bool
    cancelled: bool
    created_at: float
    finished_at: float | None
