"""Calls to the provider, and payload mode: the job's payload is the provider's request."""

from __future__ import annotations

import json
from collections.abc import Mapping
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


class ProviderCalls:
    """One provider, its connections, and how a request becomes an outcome."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self.provider = get_provider(settings.provider)
        self._client = ProviderClient(
            connect_seconds=settings.connect_seconds,
            request_seconds=settings.request_seconds,
            stream_idle_seconds=settings.stream_idle_seconds,
            pool=settings.slots,
        )

    async def call(
        self,
        payload: Mapping[str, Any],
        attempt: Attempt,
        *,
        name: int | str,
        max_output_tokens: int,
        timeout_seconds: float,
    ) -> Outcome:
        """Make one call; `name` is its own within the job.

        Raises NotSent where the store says no.
        """
        try:
            request = self.provider.request(
                payload,
                Endpoint(self._settings.base_url, attempt.credential.key),
                job_id=attempt.grant.id,
                call=name,
                max_output_tokens=max_output_tokens,
            )
        except InvalidJob as exc:
            return _refused(str(exc))
        outcome = await self._client.call(
            self.provider,
            request,
            streaming=payload.get("stream") is True,
            timeout_seconds=timeout_seconds,
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


class ProviderRunner:
    """Makes the one call of each job."""

    def __init__(self, settings: WorkerSettings, calls: ProviderCalls | None = None) -> None:
        self._settings = settings
        self._calls = calls or ProviderCalls(settings)

    async def run(self, attempt: Attempt) -> Outcome:
        grant = attempt.grant
        try:
            payload: Any = json.loads(grant.payload)
        except (ValueError, RecursionError) as exc:
            return _refused(f"the payload is no JSON: {type(exc).__name__}")
        if not isinstance(payload, dict):
            return _refused("the payload is no JSON object")
        return await self._calls.call(
            cast("dict[str, Any]", payload),
            attempt,
            name=ONLY_CALL,
            max_output_tokens=grant.max_output_tokens,
            timeout_seconds=self._settings.call_seconds(grant.timeout_seconds),
        )

    async def close(self) -> None:
        await self._calls.close()
