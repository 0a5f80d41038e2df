"""Running one granted job: the call of payload mode, and the seam for other ways to run."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, cast

from llmqueue.credentials import KeyFile, fingerprint
from llmqueue.job import MAX_RESULT_BYTES
from llmqueue.ledger import ledger_entry
from llmqueue.outcome import Outcome
from llmqueue.pricing import price
from llmqueue.providers.http import ProviderClient
from llmqueue.providers.port import Endpoint
from llmqueue.providers.registry import get_provider
from llmqueue.settings import WorkerSettings
from llmqueue.states import OutcomeClass
from llmqueue.store.port import Grant, Settlement

BeforeSend = Callable[[], Awaitable[None]]


class Runner(Protocol):
    """Runs jobs. `run` raises NotSent where the store refused, or CancelledError."""

    def credential(self) -> str:
        """Fingerprint of the key that calls would use now."""
        ...

    async def run(self, grant: Grant, before_send: BeforeSend) -> Settlement: ...
    def stopped(self, grant: Grant, outcome: Outcome, started: float) -> Settlement:
        """The settlement of a run that was cut short from outside."""
        ...

    async def close(self) -> None: ...


class CallRunner:
    """Payload mode: the payload is the provider request."""

    def __init__(self, settings: WorkerSettings, worker: str) -> None:
        self._settings = settings
        self._worker = worker
        self._provider = get_provider(settings.provider)
        self._keys = KeyFile(settings.api_key_file)
        self._client = ProviderClient(
            connect_seconds=settings.connect_seconds,
            request_seconds=settings.request_seconds,
            stream_idle_seconds=settings.stream_idle_seconds,
            pool=settings.slots + 2,
        )

    def credential(self) -> str:
        return fingerprint(self._keys.key())

    async def run(self, grant: Grant, before_send: BeforeSend) -> Settlement:
        started = time.time()
        outcome = _payload_of(grant)
        if not isinstance(outcome, Outcome):
            payload = outcome
            request = self._provider.request(
                payload,
                Endpoint(self._settings.base_url, self._keys.key()),
                job_id=grant.id,
                call=1,
                default_max_output_tokens=self._settings.default_max_output_tokens,
            )
            outcome = await self._client.call(
                self._provider,
                request,
                streaming=bool(payload.get("stream")),
                timeout_seconds=grant.timeout_seconds,
                before_send=before_send,
            )
        return self.stopped(grant, _bounded(outcome), started)

    def stopped(self, grant: Grant, outcome: Outcome, started: float) -> Settlement:
        entry = ledger_entry(
            grant, outcome, worker=self._worker, started=started, finished=time.time()
        )
        cost: int | None = 0
        if outcome.usage is not None:
            cost = price(outcome.model or grant.model, self._settings.provider, outcome.usage)
        elif outcome.kind in (OutcomeClass.UNKNOWN, OutcomeClass.CANCELLED):
            cost = None
        return Settlement(
            grant.id,
            grant.fence,
            outcome,
            credential=self.credential(),
            entry=entry,
            cost_nano_usd=cost,
            jitter=random.random(),
        )

    async def close(self) -> None:
        await self._client.close()


def _payload_of(grant: Grant) -> dict[str, Any] | Outcome:
    try:
        payload = json.loads(grant.payload)
    except ValueError as exc:
        return Outcome(OutcomeClass.PERMANENT, sent=False, message=f"payload is not JSON: {exc}")
    if not isinstance(payload, dict):
        return Outcome(OutcomeClass.PERMANENT, sent=False, message="payload is not a JSON object")
    return cast("dict[str, Any]", payload)


def _bounded(outcome: Outcome) -> Outcome:
    """An answer too large to keep is paid for, and its job fails with a clear message."""
    if outcome.result is None or len(outcome.result) <= MAX_RESULT_BYTES:
        return outcome
    return Outcome(
        OutcomeClass.PERMANENT,
        status=outcome.status,
        message=f"the answer has {len(outcome.result)} bytes, at most {MAX_RESULT_BYTES} are kept",
        usage=outcome.usage,
        model=outcome.model,
        request_id=outcome.request_id,
    )
