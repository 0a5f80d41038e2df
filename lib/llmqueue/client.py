"""Submitting jobs: validation, estimates and ids happen here, before anything is stored."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from llmqueue.config import Limit, RegistryEntry
from llmqueue.errors import InvalidJob, JobTooLarge, LimitExceeded, UnknownQueue
from llmqueue.job import (
    DEFAULT_PRIORITY,
    MAX_PAYLOAD_BYTES,
    MAX_PRIORITY,
    MIN_PRIORITY,
    Charge,
    Enqueued,
    NewJob,
)
from llmqueue.providers.registry import get_provider
from llmqueue.states import LimitUnit
from llmqueue.store import keys
from llmqueue.store.port import IntakeStore

CHUNK_JOBS = 32
"""Stored at once, all or none. More would keep the server from others for too long."""
_LABEL = r"^[^\x00-\x1f\x7f]*$"


class JobSpec(BaseModel):
    """One job as a producer describes it: a line of `llmqueue enqueue --file`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    payload: dict[str, Any]
    priority: int = Field(default=DEFAULT_PRIORITY, ge=MIN_PRIORITY, le=MAX_PRIORITY)
    tenant: str = Field(default="", max_length=64, pattern=_LABEL)
    feature: str = Field(default="", max_length=64, pattern=_LABEL)
    idempotency_key: str | None = Field(default=None, min_length=1, max_length=512)
    delay_seconds: float = Field(default=0, ge=0, le=31_536_000, allow_inf_nan=False)
    deadline_seconds: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    timeout_seconds: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    max_attempts: int | None = Field(default=None, ge=1, le=1000)


def parse_spec(line: str | bytes) -> JobSpec:
    """One JSON object → JobSpec. Raises InvalidJob with a sentence that names the field."""
    try:
        return JobSpec.model_validate_json(line)
    except ValidationError as exc:
        problems = "; ".join(
            f"{'.'.join(map(str, error['loc'])) or 'line'}: {error['msg']}"
            for error in exc.errors(include_url=False, include_input=False)
        )
        raise InvalidJob(problems) from None


def queue_id(name: str) -> str:
    """`NAME` means namespace `default`."""
    return name if "/" in name else f"default/{name}"


def _over(limit: Limit, charge: Charge, entry: RegistryEntry) -> int | None:
    """The charge where it is above the limit."""
    total = charge.input_tokens + charge.output_tokens
    largest = max(charge.input_tokens, charge.output_tokens)
    amount = {
        LimitUnit.REQUESTS: 1,
        LimitUnit.INPUT_TOKENS: charge.input_tokens,
        LimitUnit.OUTPUT_TOKENS: charge.output_tokens,
        LimitUnit.TOKENS: total if entry.token_rule == "sum" else largest,
    }[limit.unit]
    return amount if amount > limit.limit else None


def _encode(payload: dict[str, Any]) -> bytes:
    try:
        return json.dumps(payload, separators=(",", ":"), ensure_ascii=False).encode()
    except UnicodeEncodeError:  # lone surrogates have no UTF-8 form, only an escape
        return json.dumps(payload, separators=(",", ":")).encode()


def new_job(entry: RegistryEntry, spec: JobSpec) -> NewJob:
    """A validated job for the store.

    Raises InvalidJob, JobTooLarge, LimitExceeded: each says what, where and how to mend it.
    """
    config = entry.config
    payload = _encode(spec.payload)
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise JobTooLarge(
            f"payload: {len(payload)} bytes, at most {MAX_PAYLOAD_BYTES} are allowed:"
            " pass large content by reference"
        )
    if spec.timeout_seconds is not None and spec.timeout_seconds > config.attempt_seconds:
        raise InvalidJob(
            f"timeout_seconds: {spec.timeout_seconds:g} is above the queue's"
            f" timeouts.attemptSeconds ({config.attempt_seconds:g})"
        )
    prepared = get_provider(config.provider).prepare(
        spec.payload,
        models=config.models,
        default_max_output_tokens=config.default_max_output_tokens,
    )
    for limit in entry.limits:
        amount = _over(limit, prepared.charge, entry)
        if amount is not None:
            raise LimitExceeded(
                f"payload: reserves {amount} {limit.unit}, the queue's limit is {limit.limit}"
                f" in {limit.period}: it could never run; lower its maximum output or split it"
            )
    key = spec.idempotency_key
    return NewJob(
        id=keys.new_job_id(entry.code)
        if key is None
        else keys.keyed_job_id(entry.code, queue=config.queue, tenant=spec.tenant, key=key),
        queue=config.queue,
        payload=payload,
        charge=prepared.charge,
        priority=spec.priority,
        tenant=spec.tenant,
        feature=spec.feature,
        model=prepared.model,
        fingerprint=None if key is None else keys.fingerprint(payload),
        delay_seconds=spec.delay_seconds,
        deadline_seconds=spec.deadline_seconds or config.job_deadline_seconds,
        timeout_seconds=spec.timeout_seconds,
        max_attempts=spec.max_attempts,
    )


class Client:
    """Enqueues jobs into queues that the store knows."""

    def __init__(self, store: IntakeStore) -> None:
        self._store = store

    async def entry(self, queue: str) -> RegistryEntry:
        """A queue's registry entry. Raises UnknownQueue, naming those that exist."""
        registry = await self._store.registry()
        found = registry.get(queue_id(queue))
        if found is None:
            known = ", ".join(sorted(registry)) or "none"
            raise UnknownQueue(f"no queue {queue_id(queue)!r}; known queues: {known}")
        return found

    async def enqueue(self, queue: str, spec: JobSpec) -> Enqueued:
        """Enqueue one job. Raises InvalidJob, UnknownQueue, QueueFull, StoreError."""
        return (await self.enqueue_many(queue, [spec]))[0]

    async def enqueue_many(self, queue: str, specs: Iterable[JobSpec]) -> list[Enqueued]:
        """Enqueue jobs in chunks; all are validated before the first is stored."""
        entry = await self.entry(queue)
        jobs = [new_job(entry, spec) for spec in specs]
        done: list[Enqueued] = []
        for chunk in chunks(jobs):
            done += await self._store.enqueue(chunk)
        return done


def chunks(jobs: Sequence[NewJob], size: int = CHUNK_JOBS) -> Iterable[Sequence[NewJob]]:
    """Slices that one script call takes well under 5 ms for."""
    for start in range(0, len(jobs), size):
        yield jobs[start : start + size]
