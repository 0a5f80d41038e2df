"""Errors become exit codes and sentences."""

from __future__ import annotations

import pytest

from llmqueue.errors import (
    IdempotencyConflict,
    InvalidJob,
    InvalidResource,
    LimitExceeded,
    LlmqueueError,
    QueueFull,
    StoreMisconfigured,
    StoreUnavailable,
    Unconfigured,
    UnknownJob,
    UnknownQueue,
)
from llmqueue_cli.exits import Exit, exit_of, sentence


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidJob("x"), 2),
        (LimitExceeded("x"), 2),
        (IdempotencyConflict("x"), 2),
        (InvalidResource("x"), 2),
        (StoreUnavailable("x"), 3),
        (StoreMisconfigured("x"), 3),
        (Unconfigured("x"), 3),
        (UnknownQueue("x"), 4),
        (UnknownJob("x"), 4),
        (QueueFull("x"), 5),
        (LlmqueueError("x"), 1),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_each_kind_of_error_has_its_exit_code(error: LlmqueueError, code: int) -> None:
    assert exit_of(error) == code


def test_a_full_queue_says_when_to_come_back() -> None:
    error = QueueFull("queue 'default/q' is full", estimated_wait_seconds=12.4)
    assert sentence(error) == "queue 'default/q' is full (a place may be free in about 12 s)"


def test_an_error_without_words_is_named() -> None:
    assert sentence(StoreUnavailable()) == "StoreUnavailable"


def test_codes_are_documented_in_the_help() -> None:
    from llmqueue_cli.main import app

    assert all(str(int(code)) in (app.info.epilog or "") for code in Exit)
