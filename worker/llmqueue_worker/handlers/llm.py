"""`ctx.llm`: each call is replayed from the journal, or acquired, sent, booked and kept."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import structlog

from llmqueue.app import CallRefused
from llmqueue.credentials import CredentialFile
from llmqueue.errors import InvalidJob, UsageError
from llmqueue.outcome import Outcome
from llmqueue.providers.http import NotSent
from llmqueue.providers.port import Prepared
from llmqueue.settings import WorkerSettings
from llmqueue.states import OutcomeClass, RefusalReason
from llmqueue.store.port import CallRequest, FinishedCall, Grant, Journal
from llmqueue_worker.attempt import Call
from llmqueue_worker.booking import Bookkeeper, bounded
from llmqueue_worker.call import ProviderCalls
from llmqueue_worker.handlers.book import CallBook
from llmqueue_worker.handlers.run import HandlerRun
from llmqueue_worker.pump import POLL_SECONDS
from llmqueue_worker.recorder import Refused

_DIGEST_CHARACTERS = 20
_KEPT = frozenset({OutcomeClass.SUCCESS, OutcomeClass.PERMANENT})
"""A call that came to this does not end its run."""

_log = structlog.get_logger()


class Names:
    """Journal names: independent of the order of different requests, so that changed code never
    gets the answer of another request."""

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()

    def next(self, payload: Mapping[str, Any]) -> str:
        """Digest of the request, and which of the identical ones of this run it is.

        Raises TypeError, ValueError where the payload is no JSON.
        """
        text = json.dumps(payload, sort_keys=True, separators=(",", ":"), allow_nan=False)
        digest = hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_CHARACTERS]
        self._seen[digest] += 1
        return f"{digest}:{self._seen[digest]}"


class RunLlm:
    """Implements `llmqueue.app.Llm` for one run."""

    def __init__(
        self,
        run: HandlerRun,
        journal: Journal,
        *,
        settings: WorkerSettings,
        calls: ProviderCalls,
        book: CallBook,
        bookkeeper: Bookkeeper,
        credentials: CredentialFile,
    ) -> None:
        self._run, self._journal = run, journal
        self._settings, self._calls = settings, calls
        self._book, self._bookkeeper = book, bookkeeper
        self._credentials = credentials
        self._names = Names()
        self._number = 0
        self._clock = asyncio.get_running_loop().time

    async def chat(
        self, *, model: str, messages: Sequence[Mapping[str, Any]], **parameters: Any
    ) -> dict[str, Any]:
        return await self.post({"model": model, "messages": list(messages), **parameters})

    async def post(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        async with self._run.turn():
            try:
                name = self._names.next(payload)
            except (TypeError, ValueError, RecursionError) as exc:
                raise CallRefused(f"payload: no JSON: {exc}", code="invalid_payload") from exc
            self._number += 1
            answer = self._journal.answers.get(name)
            if answer is None:
                answer = await self._call(dict(payload), name)
            return cast("dict[str, Any]", json.loads(answer))

    async def _call(self, payload: dict[str, Any], name: str) -> bytes:
        """The answer of a call that is made now. Raises CallRefused, or ends the run."""
        prepared = self._prepared(payload)
        call = await self._acquired(prepared, name)
        self._run.attempt.call = call
        outcome = bounded(await self._outcome(payload, call, name))
        if outcome.kind is OutcomeClass.PERMANENT and not outcome.sent:
            raise _refusal(outcome)
        if outcome.kind not in _KEPT:
            raise self._run.end(outcome)
        await self._record(outcome, call, name)
        if outcome.kind is OutcomeClass.PERMANENT:
            raise _refusal(outcome)
        return outcome.result or b"{}"

    def _prepared(self, payload: Mapping[str, Any]) -> Prepared:
        try:
            return self._calls.provider.prepare(
                payload,
                models=(),
                default_max_output_tokens=self._run.attempt.grant.max_output_tokens,
            )
        except InvalidJob as exc:
            raise CallRefused(str(exc), code="invalid_payload") from None

    # ------------------------------------------------------------ before it leaves

    async def _acquired(self, prepared: Prepared, name: str) -> Call:
        """Charged, however long that takes."""
        run, grant = self._run, self._run.attempt.grant
        while True:
            if run.attempt.draining:
                raise run.end(NotSent("draining"))
            if not self._has_key():
                await run.wait(POLL_SECONDS)
                continue
            reply = await self._book.acquire(self._request(prepared, name))
            if reply.verdict == "wait":
                await run.wait(reply.wait_seconds)
            elif reply.verdict == "too-large":
                raise CallRefused(f"the call is too large for {reply.limit}", code="too_large")
            elif reply.verdict == "not-allowed":
                raise CallRefused(
                    f"payload.model: {prepared.model!r} is not allowed in this queue;"
                    f" allowed: {reply.limit}",
                    code="model_not_allowed",
                )
            elif reply.verdict == "draining":
                raise run.end(NotSent("draining"))
            elif reply.verdict == "lost":
                raise run.end(Refused(RefusalReason.STALE))
            else:
                reserved = _reserved(
                    grant,
                    prepared,
                    (reply.input_tokens, reply.output_tokens),
                    in_doubt=name in self._journal.in_doubt,
                )
                return Call(self._number, reserved, self._clock())

    def _has_key(self) -> bool:
        """Use the key as it is now: the one of the claim may have been replaced meanwhile."""
        attempt = self._run.attempt
        try:
            attempt.credential = self._credentials.read()
        except UsageError as exc:
            _log.warning("credential-unusable", job=attempt.grant.id, message=str(exc))
            return False
        return True

    def _request(self, prepared: Prepared, name: str) -> CallRequest:
        attempt = self._run.attempt
        return CallRequest(
            attempt.grant.id,
            attempt.grant.fence,
            self._number,
            name,
            prepared.charge,
            prepared.model,
            attempt.credential.fingerprint,
        )

    # ------------------------------------------------------------ on its way

    async def _outcome(self, payload: Mapping[str, Any], call: Call, name: str) -> Outcome:
        run, attempt = self._run, self._run.attempt
        attempt.ends_at = self._clock() + self._settings.connect_seconds + run.left_seconds
        try:
            return await self._calls.call(
                payload,
                attempt,
                name=name,
                max_output_tokens=call.grant.max_output_tokens,
                timeout_seconds=max(0.001, min(self._settings.request_seconds, run.left_seconds)),
            )
        except NotSent as exc:
            raise run.end(exc) from exc
        except asyncio.CancelledError:
            self._cancelled()
            raise
        except Exception as exc:  # an edge: a bug of ours must not be taken for the owner's
            _log.exception("call-failed", job=attempt.grant.id, sent=attempt.sent)
            kind = OutcomeClass.UNKNOWN if attempt.sent else OutcomeClass.TRANSIENT
            message = f"the worker failed: {type(exc).__name__}"
            raise run.end(
                Outcome(kind, sent=attempt.sent, code="internal_error", message=message)
            ) from exc
        finally:
            run.take_own_time(self._clock() - call.started_at)

    def _cancelled(self) -> None:
        """The function closed its own call: what came of it is as unknown as after a crash."""
        attempt = self._run.attempt
        if attempt.stop is not None:
            return
        if attempt.sent:
            self._run.end(
                Outcome(
                    OutcomeClass.UNKNOWN,
                    code="call_cancelled",
                    message="the handler cancelled its call before the answer came",
                )
            )
        elif attempt.asked:
            self._run.end(NotSent("cancelled while the store was asked"))

    # ------------------------------------------------------------ after its answer

    async def _record(self, outcome: Outcome, call: Call, name: str) -> None:
        """Book it and keep the answer, before the function sees it."""
        run, attempt = self._run, self._run.attempt
        settlement = self._bookkeeper.settlement(
            attempt, outcome, seconds=self._clock() - call.started_at
        )
        attempt.recording = True
        try:
            goes_on = await _to_its_end(
                self._book.finish(FinishedCall(settlement, call.number, name))
            )
        finally:
            attempt.end_recording()
        attempt.close_call()
        if not goes_on:
            raise run.end(Refused(RefusalReason.STALE))
        run.check()


def _reserved(
    grant: Grant, prepared: Prepared, tokens: tuple[int, int], *, in_doubt: bool
) -> Grant:
    """The grant as it is for one call."""
    return replace(
        grant,
        model=prepared.model,
        input_tokens=tokens[0],
        output_tokens=tokens[1],
        max_output_tokens=prepared.charge.output_tokens,
        possible_duplicate=in_doubt,
    )


def _refusal(outcome: Outcome) -> CallRefused:
    return CallRefused(
        outcome.message, status=outcome.status, code=outcome.code, severity=outcome.severity
    )


async def _to_its_end(told: asyncio.Future[bool]) -> bool:
    """A cancellation of the caller waits until the store knows."""
    cancelled = False
    while not told.done():
        try:
            await asyncio.shield(told)
        except asyncio.CancelledError:
            if told.cancelled():
                raise
            cancelled = True
    if cancelled:
        raise asyncio.CancelledError
    return told.result()
