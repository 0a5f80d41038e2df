"""From a grant to its end: run, book, settle; or give back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from llmqueue.credentials import Credential
from llmqueue.outcome import Outcome
from llmqueue.providers.http import NotSent
from llmqueue.states import OutcomeClass, Severity
from llmqueue.store.port import Grant
from llmqueue_worker.attempt import Attempt, Stop
from llmqueue_worker.booking import Bookkeeper
from llmqueue_worker.inflight import InFlight
from llmqueue_worker.metrics import Stats
from llmqueue_worker.recorder import Recorder, Refused
from llmqueue_worker.runner import Runner

_log = structlog.get_logger()


class Runs:
    """Starts attempts and brings each to its end, whatever happens in between.

    `call_seconds`: how long a call may take, from what its job asked for.
    """

    def __init__(
        self,
        runner: Runner,
        recorder: Recorder,
        in_flight: InFlight,
        bookkeeper: Bookkeeper,
        stats: Stats,
        *,
        call_seconds: Callable[[float | None], float],
        connect_seconds: float,
    ) -> None:
        self._runner, self._recorder, self._in_flight = runner, recorder, in_flight
        self._bookkeeper, self._stats = bookkeeper, stats
        self._call_seconds, self._connect_seconds = call_seconds, connect_seconds
        self._clock: Callable[[], float] = asyncio.get_running_loop().time
        self._draining = False

    def start(self, grant: Grant, credential: Credential) -> None:
        """Run a granted job; while draining it only goes back."""
        now = self._clock()
        attempt = Attempt(
            grant,
            credential,
            ask=self._recorder.ask,
            started_at=now,
            ends_at=now + self._connect_seconds + self._call_seconds(grant.timeout_seconds),
        )
        if self._draining:
            attempt.stop = Stop.DRAINING
        self._in_flight.add(attempt)
        attempt.task = asyncio.create_task(self._run(attempt))

    def drain(self) -> None:
        """Give back what was not sent, now and from now on; calls that were sent go on."""
        self._draining = True
        for attempt in self._in_flight.attempts():
            attempt.draining = True
            if not attempt.sent and not attempt.own_code:
                attempt.interrupt(Stop.DRAINING)

    def end(self) -> None:
        """The time is over: close the calls that still run; their outcome is unknown."""
        for attempt in self._in_flight.attempts():
            attempt.interrupt(Stop.OVERDUE)

    async def _run(self, attempt: Attempt) -> None:
        attempt.begun = True
        try:
            outcome = await self._outcome(attempt)
            attempt.finished = True
            if outcome is not None:
                await self._settle(attempt, outcome)
            elif attempt.give_back:
                await self._recorder.release(attempt)
        finally:
            self._in_flight.remove(attempt)

    async def _outcome(self, attempt: Attempt) -> Outcome | None:
        """What it came to; None where there is nothing to settle."""
        if attempt.stop is not None:
            return _stopped(attempt)
        try:
            return await self._runner.run(attempt)
        except Refused:
            return None
        except NotSent:
            attempt.give_back = True
            return None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if attempt.stop is None or task is None:
                raise
            task.uncancel()
            return _stopped(attempt)
        except Exception as exc:  # an edge: a bug of ours must cost neither the job nor the pump
            _log.exception("run-failed", job=attempt.grant.id, sent=attempt.sent)
            return _bug(attempt, exc)

    async def _settle(self, attempt: Attempt, outcome: Outcome) -> None:
        seconds = self._clock() - attempt.started_at
        self._stats.called(outcome.kind, seconds)
        if outcome.severity is Severity.CRITICAL and outcome.kind is not OutcomeClass.SUCCESS:
            _log.error(
                "call-refused",
                job=attempt.grant.id,
                outcome=str(outcome.kind),
                status=outcome.status,
                message=outcome.message,
                credential=attempt.credential.fingerprint,
            )
        reply = await self._recorder.settle(
            self._bookkeeper.settlement(
                attempt, outcome, seconds=self._clock() - attempt.call.started_at
            )
        )
        self._stats.verdicts[reply.verdict] += 1
        if reply.verdict == "fenced" and outcome.sent:
            _log.warning("settled-late", job=attempt.grant.id, outcome=str(outcome.kind))


def _stopped(attempt: Attempt) -> Outcome | None:
    """What a stopped attempt came to."""
    if attempt.stop is Stop.CANCELLED:
        if not attempt.asked:
            return None  # an unsent job is cancelled by the store alone
        return Outcome(OutcomeClass.CANCELLED, sent=attempt.sent, message="cancelled")
    if not attempt.sent:
        attempt.give_back = attempt.stop is not Stop.LOST
        return None
    return Outcome(
        OutcomeClass.UNKNOWN,
        message="the worker had to end before the answer came",
        code="drain_overdue",
    )


def _bug(attempt: Attempt, error: Exception) -> Outcome:
    kind = OutcomeClass.UNKNOWN if attempt.sent else OutcomeClass.TRANSIENT
    return Outcome(
        kind,
        sent=attempt.sent,
        code="internal_error",
        message=f"the worker failed: {type(error).__name__}",
    )
