"""Outcomes of calls that brought no complete answer, by what was known when they ended."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from typing import cast

import httpx2

from llmqueue.outcome import Outcome, Usage
from llmqueue.providers.excerpt import excerpt
from llmqueue.providers.headers import request_id
from llmqueue.providers.transport import StaleConnection
from llmqueue.states import OutcomeClass, Severity

_NO_SUCH_HOST = frozenset({socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)})
_WRONG_SETUP = (
    httpx2.InvalidURL,
    httpx2.UnsupportedProtocol,
    httpx2.LocalProtocolError,
    UnicodeError,
)
"""Address or key cannot be written as a request: true of every job."""
_QUIET = (httpx2.LocalProtocolError, UnicodeError)
"""Their words quote headers."""


def _causes(exc: BaseException) -> list[BaseException]:
    """The exception and all it came from."""
    found: list[BaseException] = []
    pending: list[BaseException | None] = [exc]
    while pending:
        one = pending.pop()
        if one is None or one in found:
            continue
        found.append(one)
        if isinstance(one, BaseExceptionGroup):
            pending += cast("BaseExceptionGroup[BaseException]", one).exceptions
        pending += [one.__cause__, one.__context__]
    return found


def _words(exc: BaseException) -> str:
    text = "" if isinstance(exc, _QUIET) else str(exc)
    return f"{type(exc).__name__}: {text}" if text else type(exc).__name__


def _not_sent_class(exc: BaseException) -> OutcomeClass:
    """Why nothing was sent: a wrong set-up needs a person, all else is tried again."""
    if isinstance(exc, _WRONG_SETUP):
        return OutcomeClass.AUTH
    for cause in _causes(exc):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return OutcomeClass.AUTH
        if isinstance(cause, socket.gaierror) and cause.errno in _NO_SUCH_HOST:
            return OutcomeClass.AUTH
    return OutcomeClass.TRANSIENT


def not_sent(exc: Exception) -> Outcome:
    """No byte of the request left: costs nothing, is not counted against the provider."""
    kind = _not_sent_class(exc)
    return Outcome(
        kind,
        sent=False,
        message=excerpt(f"nothing was sent: {_words(exc)}"),
        code="stale_connection" if isinstance(exc, StaleConnection) else type(exc).__name__,
        severity=Severity.CRITICAL if kind is OutcomeClass.AUTH else Severity.ERROR,
    )


def no_answer(
    exc: Exception,
    *,
    status: int | None,
    headers: Mapping[str, str],
    kept: bool,
    usage: Usage | None,
) -> Outcome:
    """The request left and no complete answer came back: it may be billed.

    `kept`: the connection had served a call before; closed without a byte of answer, it is named
    `stale_connection`: most likely the server closed it at the same moment.
    """
    stale = kept and status is None and isinstance(exc, httpx2.ReadError | httpx2.ProtocolError)
    return Outcome(
        OutcomeClass.UNKNOWN,
        status=status,
        message=excerpt(f"no complete answer: {_words(exc)}"),
        code="stale_connection" if stale else type(exc).__name__,
        usage=usage,
        request_id=request_id(headers),
    )


def redirected(status: int, headers: Mapping[str, str]) -> Outcome:
    """The address is not the provider's: every job would meet the same, so a person must act."""
    target = headers.get("location", "nowhere")
    return Outcome(
        OutcomeClass.AUTH,
        status=status,
        message=excerpt(
            f"redirected to {target}; redirects are not followed: correct provider.baseURL"
        ),
        code="redirect",
        severity=Severity.CRITICAL,
    )
