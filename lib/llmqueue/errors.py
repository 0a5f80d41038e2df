"""Errors of the shared library.

LlmqueueError
├── UsageError                a caller's mistake; the message says what, where and how to mend it
│   ├── InvalidJob            refused at enqueue
│   │   ├── JobTooLarge       above a byte bound
│   │   ├── LimitExceeded     its charge is above a limit, so it could never run
│   │   └── IdempotencyConflict   same key, other bytes
│   ├── InvalidResource       an LLMQueue manifest that does not validate
│   ├── UnknownQueue
│   └── UnknownJob
├── QueueFull                 bounded queue; carries an estimated wait
└── StoreError
    ├── StoreUnavailable      unreachable, loading, failing over: try again, nothing is known
    ├── StoreMisconfigured    wrong password, wrong type, wrong eviction policy: a person must act
    └── Unconfigured          no `cfg`: the store was reset or no operator ran yet
"""

from __future__ import annotations


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


class InvalidResource(UsageError):
    """An LLMQueue manifest that does not validate."""


class UnknownQueue(UsageError):
    """No such queue in the registry."""


class UnknownJob(UsageError):
    """No such job, or its retention is over."""


class QueueFull(LlmqueueError):
    """The queue's bound by count or bytes is reached.

    Attributes:
        estimated_wait_seconds: when a place may be free, or None where nothing is known.
    """

    def __init__(self, message: str, *, estimated_wait_seconds: float | None = None) -> None:
        super().__init__(message)
        self.estimated_wait_seconds = estimated_wait_seconds


class StoreError(LlmqueueError):
    """The store did not do what was asked."""


class StoreUnavailable(StoreError):
    """The store cannot be reached or is not ready; whether a write happened is not known."""


class StoreMisconfigured(StoreError):
    """The store answers but cannot serve: password, type, eviction policy."""


class Unconfigured(StoreError):
    """The budget has no configuration in the store."""
