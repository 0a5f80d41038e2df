"""Errors of the shared library.

LlmqueueError
├── UsageError                a caller's mistake; the message says what, where and how to mend it
│   ├── InvalidJob            refused at enqueue
│   │   ├── JobTooLarge       above a byte bound
│   │   ├── LimitExceeded     its charge is above a limit, so it could never run
│   │   ├── IdempotencyConflict   same key, other bytes
│   │   └── BatchConflict     not a job that this batch can take
│   ├── InvalidResource       an LLMQueue manifest that does not validate
│   ├── UnknownQueue
│   ├── UnknownJob
│   └── UnknownBatch
├── QueueFull                 bounded queue; carries an estimated wait
├── PartlyEnqueued            some of many were stored; carries them, and what stopped the rest
├── JobNotSucceeded           what waiting for a result ends with; carries the job's view
│   ├── JobFailed             dead
│   ├── JobCancelled
│   ├── JobExpired            its deadline passed
│   └── JobInReview           its outcome is unknown until a person decides
└── StoreError
    ├── StoreUnavailable      unreachable, loading, failing over: try again, nothing is known
    ├── StoreMisconfigured    wrong version, wrong type, wrong eviction policy: a person must act
    │   └── StoreRefused      wrong password, or rights that are missing
    └── Unconfigured          no `cfg`: the store was reset or no operator ran yet
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llmqueue.job import JobView


class LlmqueueError(Exception):
    """Any error that llmqueue raises on purpose."""


class UsageError(LlmqueueError):
    """A caller's mistake; its message says what is wrong, where, and how to mend it."""


class InvalidJob(UsageError):
    """The job was refused at enqueue; nothing was stored."""


class JobTooLarge(InvalidJob):
    """Payload or result above a byte bound."""


class LimitExceeded(InvalidJob):
    """The job's charge is above a limit of its queue, so it could never run."""


class IdempotencyConflict(InvalidJob):
    """The idempotency key belongs to a job with other bytes."""


class BatchConflict(InvalidJob):
    """The batch takes no more jobs, or the job was enqueued before outside of it."""


class InvalidResource(UsageError):
    """An LLMQueue manifest that does not validate."""


class UnknownQueue(UsageError):
    """No such queue in the registry."""


class UnknownJob(UsageError):
    """No such job, or its retention is over."""


class UnknownBatch(UsageError):
    """No such batch, or its retention is over."""


class QueueFull(LlmqueueError):
    """The queue's bound by count or bytes is reached.

    Attributes:
        estimated_wait_seconds: when a place may be free, or None where nothing is known.
    """

    def __init__(self, message: str, *, estimated_wait_seconds: float | None = None) -> None:
        super().__init__(message)
        self.estimated_wait_seconds = estimated_wait_seconds


class PartlyEnqueued(LlmqueueError):
    """Some of many jobs were stored; `__cause__` is what stopped the rest.

    Attributes:
        stored: ids of the jobs that are stored, in order.
        unknown: ids of those of which no answer came: they may be stored. Enqueueing the same jobs
            again doubles none that has an idempotency key.
        total: how many were to be stored.
    """

    def __init__(
        self, message: str, *, stored: tuple[str, ...], unknown: tuple[str, ...], total: int
    ) -> None:
        super().__init__(message)
        self.stored = stored
        self.unknown = unknown
        self.total = total


class JobNotSucceeded(LlmqueueError):
    """A job has no result. `view` is all that is known of it."""

    def __init__(self, message: str, *, view: JobView) -> None:
        super().__init__(message)
        self.view = view

    @property
    def outcome_class(self) -> str | None:
        """What its last attempt came to, as `PERMANENT`; None where none was made."""
        return self._error.get("class")

    @property
    def severity(self) -> str | None:
        return self._error.get("severity")

    @property
    def attempts(self) -> list[dict[str, Any]]:
        return self.view.attempts

    @property
    def _error(self) -> dict[str, Any]:
        return self.view.error or {}


class JobFailed(JobNotSucceeded):
    """The job is dead: no attempts are left, or none would help."""


class JobCancelled(JobNotSucceeded):
    """Somebody cancelled the job."""


class JobExpired(JobNotSucceeded):
    """The job's deadline passed before it was done."""


class JobInReview(JobNotSucceeded):
    """A call's outcome is unknown: a person decides whether it is made again."""


class StoreError(LlmqueueError):
    """The store did not do what was asked."""


class StoreUnavailable(StoreError):
    """The store cannot be reached or is not ready; whether a write happened is not known."""


class StoreMisconfigured(StoreError):
    """The store answers but cannot serve: password, type, eviction policy."""


class StoreRefused(StoreMisconfigured):
    """The store refuses the credentials, or a right that is needed is missing."""


class Unconfigured(StoreError):
    """The budget has no configuration in the store."""
