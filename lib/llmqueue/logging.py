"""Structured logs: one event name and fields, one line each, to standard error. Never a payload,
a result or a secret."""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Any, Literal

import structlog

from llmqueue.providers.excerpt import excerpt

_NEVER = frozenset(
    {"api_key", "authorization", "body", "key", "password", "payload", "result", "redis_url"}
)
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING,
           "error": logging.ERROR}  # fmt: skip
_OWN_TEXT = frozenset({"event", "level", "timestamp", "exception"})


def scrub(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Processor: cut what is long, hide what looks like a key, drop what must not be logged."""
    for name, value in event.items():
        if name in _NEVER:
            event[name] = "[secret]"
        elif name == "exception":
            event[name] = "\n".join(excerpt(line) for line in str(value).splitlines())
        elif isinstance(value, str) and name not in _OWN_TEXT:
            event[name] = excerpt(value)
    return event


class _StandardError:
    """A logger that never raises: a closed pipe must not end what it tells of."""

    def __init__(self, *_args: object) -> None:
        """Made for each line, so that a replaced stream is used."""

    def msg(self, line: str) -> None:
        with suppress(OSError, ValueError):
            sys.stderr.write(line + "\n")
            sys.stderr.flush()

    debug = info = warning = error = exception = msg


def configure(
    level: Literal["debug", "info", "warning", "error"],
    style: Literal["json", "console"],
    **fields: str,
) -> None:
    """Set up logs of this process; `fields` are in every line."""
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer(ensure_ascii=False)
        if style == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            scrub,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=_StandardError,
    )
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(**fields)
