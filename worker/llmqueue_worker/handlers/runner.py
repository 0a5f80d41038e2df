"""From a handler job's grant to its outcome."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, cast

import structlog
from pydantic import TypeAdapter

from llmqueue.app import FAILURE_HANDLER, App, CallRefused, Failure, Llm, Reject, Retry
from llmqueue.credentials import CredentialFile
from llmqueue.errors import InvalidJob
from llmqueue.job import MAX_RESULT_BYTES
from llmqueue.outcome import Outcome
from llmqueue.providers.excerpt import excerpt
from llmqueue.providers.http import NotSent
from llmqueue.settings import WorkerSettings
from llmqueue.states import OutcomeClass, Severity
from llmqueue.store.port import Grant
from llmqueue_worker.attempt import Attempt
from llmqueue_worker.booking import Bookkeeper
from llmqueue_worker.call import ProviderCalls
from llmqueue_worker.handlers.book import CallBook
from llmqueue_worker.handlers.llm import RunLlm
from llmqueue_worker.handlers.progress import Progress
from llmqueue_worker.handlers.run import Ended, HandlerRun

Work = Callable[[RunLlm, Progress], Awaitable[Any]]

_FAILURE = TypeAdapter(Failure)
_log = structlog.get_logger()


class RunContext:
    """Implements `llmqueue.app.Context`."""

    def __init__(self, grant: Grant, llm: RunLlm, progress: Progress) -> None:
        self._grant, self._progress = grant, progress
        self.llm: Llm = llm
        self.job_id, self.attempt = grant.id, grant.attempt
        self.tenant, self.feature = grant.tenant, grant.feature
        self.correlation_id = grant.correlation_id

    async def progress(self, fraction: float, message: str = "") -> None:
        await self._progress.show(fraction, message)


class _NotHere(InvalidJob):
    """This process does not know the handler: one of a newer image, in a rollout, may."""


class HandlerRunner:
    """Runs the functions of one App. `app` None: this queue has none."""

    def __init__(
        self,
        settings: WorkerSettings,
        app: App | None,
        calls: ProviderCalls,
        book: CallBook,
        bookkeeper: Bookkeeper,
    ) -> None:
        self._settings, self._app, self._calls = settings, app, calls
        self._book, self._bookkeeper = book, bookkeeper
        self._credentials = CredentialFile(settings.api_key_file)

    async def run(self, attempt: Attempt) -> Outcome:
        """Raises NotSent and CancelledError, as a Runner does."""
        grant = attempt.grant
        try:
            work = self._work(grant)
        except _NotHere as exc:
            return _own(OutcomeClass.TRANSIENT, str(exc), code="unknown_handler")
        except InvalidJob as exc:
            return _own(OutcomeClass.PERMANENT, str(exc), code="invalid_job")
        seconds = grant.timeout_seconds or self._settings.attempt_seconds
        run = HandlerRun(attempt, seconds=min(seconds, self._settings.attempt_seconds))
        attempt.ends_at = attempt.started_at + run.left_seconds
        journal = await self._book.journal(grant)
        llm = RunLlm(
            run,
            journal,
            settings=self._settings,
            calls=self._calls,
            book=self._book,
            bookkeeper=self._bookkeeper,
            credentials=self._credentials,
        )
        progress = Progress(lambda part, text: self._book.progress(grant, part, text))
        return await _carry_out(run, lambda: work(llm, progress), progress)

    async def close(self) -> None:
        await self._book.close()

    def _work(self, grant: Grant) -> Work:
        """What there is to do. Raises InvalidJob with a sentence."""
        app = self._app
        if app is None:
            raise _NotHere(
                "the workers of this queue know no handlers: set spec.worker.handlers to the module"
                " that has them"
            )
        if grant.handler == FAILURE_HANDLER:
            return _report(app, grant)
        handler = app.handlers.get(grant.handler)
        if handler is None:
            known = ", ".join(sorted(app.handlers)) or "none"
            raise _NotHere(f"there is no handler {grant.handler!r}; known handlers: {known}")
        arguments = handler.arguments.parse(grant.payload)
        return lambda llm, progress: handler.function(RunContext(grant, llm, progress), **arguments)


def _report(app: App, grant: Grant) -> Work:
    head, _, raw = grant.payload.partition(b"\n")
    failed, event = app.failed, _FAILURE.validate_json(head)

    async def report(_llm: RunLlm, _progress: Progress) -> None:
        if failed is not None:
            await failed(replace(event, payload=_object(raw)))

    return report


def _object(raw: bytes) -> dict[str, Any] | None:
    """A payload that is a JSON object, or nothing."""
    try:
        found: Any = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None


async def _carry_out(
    run: HandlerRun, function: Callable[[], Awaitable[Any]], progress: Progress
) -> Outcome:
    """Run the function, and see what it came to; what `run` decided counts more."""
    run.start_own_code()
    try:
        outcome = await _outcome(run, function)
    finally:
        if run.timed_out:
            _forget_cancellation()
    await run.close()
    if run.attempt.stop is not None:
        progress.drop()
        raise asyncio.CancelledError
    run.attempt.finished = True
    await progress.close()
    if isinstance(run.verdict, NotSent):
        raise run.verdict
    return run.verdict or outcome


async def _outcome(run: HandlerRun, function: Callable[[], Awaitable[Any]]) -> Outcome:
    """What the function did, as far as it was left to itself."""
    try:
        return _success(await function())
    except Reject as exc:
        return _own(OutcomeClass.PERMANENT, str(exc), code="rejected", severity=exc.severity)
    except Retry as exc:
        return _own(
            OutcomeClass.TRANSIENT, str(exc), code="retry", retry_after_seconds=exc.after_seconds
        )
    except CallRefused as exc:
        return _own(
            OutcomeClass.PERMANENT,
            exc.message,
            code=exc.code,
            status=exc.status,
            severity=exc.severity,
        )
    except asyncio.CancelledError as exc:
        if run.attempt.stop is not None or run.verdict is not None:
            return _failed(run, exc)
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            await run.close()
            raise
        return _failed(run, exc)
    except (Exception, Ended, SystemExit, BaseExceptionGroup) as exc:
        return _failed(run, exc)


def _failed(run: HandlerRun, error: BaseException) -> Outcome:
    """An error of the owner's code: tried again, as it may have been the moment's."""
    if run.verdict is None and run.attempt.stop is None:
        _log.warning("handler-failed", job=run.attempt.grant.id, exc_info=error)
    words = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return _own(OutcomeClass.TRANSIENT, words, code="handler_error")


def _success(value: Any) -> Outcome:
    try:
        # Escapes everywhere: a lone surrogate, as a provider may send one, has no other form.
        result = json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as exc:
        return _own(
            OutcomeClass.PERMANENT, f"the handler's result is no JSON: {exc}", code="invalid_result"
        )
    if len(result) > MAX_RESULT_BYTES:
        return _own(
            OutcomeClass.PERMANENT,
            f"the handler's result has {len(result)} bytes, at most {MAX_RESULT_BYTES} are kept:"
            " return a reference to large content",
            code="result_too_large",
        )
    return Outcome(OutcomeClass.SUCCESS, sent=False, own=True, result=result)


def _own(
    kind: OutcomeClass,
    message: str,
    *,
    code: str,
    status: int | None = None,
    retry_after_seconds: float | None = None,
    severity: Severity = Severity.ERROR,
) -> Outcome:
    return Outcome(
        kind,
        sent=False,
        own=True,
        status=status,
        code=code,
        message=excerpt(message),
        retry_after_seconds=retry_after_seconds,
        severity=severity,
    )


def _forget_cancellation() -> None:
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()
