"""Errors of the operator.

OperatorError
├── ApiError                  the API server's answer
│   ├── NotFound
│   ├── AlreadyExists
│   ├── StaleVersion          the object has changed since it was read
│   ├── FieldConflict         another manager owns a field; carries who
│   ├── Refused               forbidden or invalid: a person must act; nothing was written
│   └── ApiUnavailable        unreachable, overloaded, timed out: try again, nothing is known
├── NotLeading                this process may not write any more
└── UnusableConnection        spec.redis names what this operator cannot use
"""

from __future__ import annotations

from llmqueue.errors import LlmqueueError


class OperatorError(LlmqueueError):
    """Any error that the operator raises on purpose."""


class ApiError(OperatorError):
    """The API server did not do what was asked."""


class NotFound(ApiError):
    """No such object."""


class AlreadyExists(ApiError):
    """An object of that name is there."""


class StaleVersion(ApiError):
    """The object has changed since it was read."""


class FieldConflict(ApiError):
    """Another manager owns a field that was to be written.

    Attributes:
        managers: their names.
    """

    def __init__(self, message: str, *, managers: tuple[str, ...]) -> None:
        super().__init__(message)
        self.managers = managers


class Refused(ApiError):
    """Forbidden or invalid; the message is the server's."""


class ApiUnavailable(ApiError):
    """The server did not answer, or not now; whether a write happened is not known."""


class NotLeading(OperatorError):
    """The Lease was lost or is too old: another replica may be acting."""


class UnusableConnection(OperatorError):
    """The Redis connection of an LLMQueue is not in the settings, or workers cannot be given it."""
