"""Exit codes of `llmqueue`, and which error ends with which.

0 ok · 1 failed · 2 wrong use: options, manifests, jobs · 3 the store cannot be used ·
4 no such queue or job · 5 the queue is full · 130 interrupted
"""

from __future__ import annotations

from enum import IntEnum

from llmqueue.errors import (
    LlmqueueError,
    PartlyEnqueued,
    QueueFull,
    StoreError,
    UnknownBatch,
    UnknownJob,
    UnknownQueue,
    UsageError,
)


class Exit(IntEnum):
    OK = 0
    FAILED = 1
    USAGE = 2
    STORE = 3
    NOT_FOUND = 4
    QUEUE_FULL = 5
    INTERRUPTED = 130


_OF_ERROR: tuple[tuple[type[LlmqueueError], Exit], ...] = (
    (UnknownQueue, Exit.NOT_FOUND),
    (UnknownJob, Exit.NOT_FOUND),
    (UnknownBatch, Exit.NOT_FOUND),
    (UsageError, Exit.USAGE),
    (QueueFull, Exit.QUEUE_FULL),
    (StoreError, Exit.STORE),
)


def exit_of(error: LlmqueueError) -> Exit:
    """The exit code that tells a script what kind of error this was."""
    if isinstance(error, PartlyEnqueued) and isinstance(error.__cause__, LlmqueueError):
        return exit_of(error.__cause__)
    for kind, code in _OF_ERROR:
        if isinstance(error, kind):
            return code
    return Exit.FAILED


def sentence(error: LlmqueueError) -> str:
    """What a person reads: the message, and how long to wait where that is known."""
    text = str(error) or type(error).__name__
    cause = error.__cause__ if isinstance(error, PartlyEnqueued) else error
    wait = cause.estimated_wait_seconds if isinstance(cause, QueueFull) else None
    return text if wait is None else f"{text} (a place may be free in about {wait:.0f} s)"
