"""Payload mode: the job's payload is the provider's request."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, cast

from llmqueue.errors import InvalidJob
from llmqueue.outcome import Outcome
from llmqueue.providers.http import ProviderClient
from llmqueue.providers.port import Endpoint
from llmqueue.providers.registry import get_provider
from llmqueue.settings import WorkerSettings
from llmqueue.states import OutcomeClass
from llmqueue_worker.attempt import Attempt

ONLY_CALL = 1


def _refused(message: str) -> Outcome:
    return Outcome(OutcomeClass.PERMANENT, sent=False, message=message, code="invalid_payload")


class ProviderRunner:
    """Makes the one call of each job."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self._provider = get_provider(settings.provider)
        self._client = ProviderClient(
            connect_seconds=settings.connect_seconds,
            request_seconds=settings.request_seconds,
            stream_idle_seconds=settings.stream_idle_seconds,
            pool=settings.slots,
        )

    async def run(self, attempt: Attempt) -> Outcome:
        grant = attempt.grant
        try:
            payload: Any = json.loads(grant.payload)
        except (ValueError, RecursionError) as exc:
            return _refused(f"the payload is no JSON: {type(exc).__name__}")
        if not isinstance(payload, dict):
            return _refused("the payload is no JSON object")
        fields = cast("dict[str, Any]", payload)
        try:
            request = self._provider.request(
                fields,
                Endpoint(self._settings.base_url, attempt.credential.key),
                job_id=grant.id,
                call=ONLY_CALL,
                max_output_tokens=grant.max_output_tokens,
            )
        except InvalidJob as exc:
            return _refused(str(exc))
        outcome = await self._client.call(
            self._provider,
            request,
            streaming=fields.get("stream") is True,
            timeout_seconds=self._settings.call_seconds(grant.timeout_seconds),
            before_send=attempt.send,
        )
        return self._trusting(outcome)

    def _trusting(self, outcome: Outcome) -> Outcome:
        """A provider that honours idempotency keys is sent the same request again."""
        if self._settings.idempotency == "Honoured" and outcome.kind is OutcomeClass.UNKNOWN:
            return replace(outcome, kind=OutcomeClass.TRANSIENT)
        return outcome

    async def close(self) -> None:
        await self._client.close()
