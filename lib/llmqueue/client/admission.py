"""What a queue takes: validation, estimates and ids happen here, before anything is stored."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from llmqueue.client.spec import JobSpec
from llmqueue.config import Limit, RegistryEntry
from llmqueue.errors import InvalidJob, JobTooLarge, LimitExceeded
from llmqueue.job import MAX_PAYLOAD_BYTES, Charge, NewJob
from llmqueue.profiles import PROFILES
from llmqueue.providers.registry import get_provider
from llmqueue.states import LimitUnit
from llmqueue.store import keys

CHUNK_JOBS = 32
"""Stored at once, all or none. More would keep the server from others for too long."""
HANDLER_INPUT_TOKENS = 1_000
"""What a handler job reserves for its first call where its producer says nothing: a page of text.
Its later calls reserve what they are."""


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


def _encode(content: Mapping[str, Any], field: str) -> bytes:
    try:
        raw = json.dumps(content, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        encoded = raw.encode()
    except UnicodeEncodeError:  # lone surrogates have no UTF-8 form, only an escape
        encoded = json.dumps(content, separators=(",", ":")).encode()
    except (TypeError, ValueError) as exc:
        raise InvalidJob(f"{field}: is not JSON: {exc}; give JSON values only") from None
    if len(encoded) > MAX_PAYLOAD_BYTES:
        raise JobTooLarge(
            f"{field}: {len(encoded)} bytes, at most {MAX_PAYLOAD_BYTES} are allowed:"
            " pass large content by reference"
        )
    return encoded


def _payload_charge(
    entry: RegistryEntry, spec: JobSpec, payload: Mapping[str, Any]
) -> tuple[str, Charge]:
    """Model and charge of the one call that the payload is.

    An estimate of the output is a bound where the payload has none. Where it has one, the estimate
    is reserved only if the provider counts what was used: else it counts the payload's own bound.
    """
    config, asked = entry.config, spec.estimated_output_tokens
    prepared = get_provider(config.provider).prepare(
        payload,
        models=config.models,
        default_max_output_tokens=asked or config.default_max_output_tokens,
    )
    charge = prepared.charge
    if asked is not None and asked > charge.output_tokens:
        raise InvalidJob(
            f"estimated_output_tokens: {asked} is above what the payload allows"
            f" ({charge.output_tokens}): lower it, or raise the payload's maximum"
        )
    counts_usage = PROFILES[config.provider].token_accounting == "correct"
    given = spec.estimated_input_tokens
    return prepared.model, Charge(
        charge.input_tokens if given is None else given,
        asked if asked is not None and counts_usage else charge.output_tokens,
        charge.worst_nano_usd,
    )


def _handler_charge(entry: RegistryEntry, spec: JobSpec) -> Charge:
    """Of a handler's first call; what its calls cost at most is not known."""
    config, given = entry.config, spec.estimated_input_tokens
    if not config.handlers:
        raise InvalidJob(
            f"handler: the workers of queue {config.queue!r} have no handlers:"
            " name their module in spec.worker.handlers, or give a payload"
        )
    return Charge(
        HANDLER_INPUT_TOKENS if given is None else given,
        spec.estimated_output_tokens or config.default_max_output_tokens,
    )


def _content(entry: RegistryEntry, spec: JobSpec) -> tuple[bytes, str, Charge]:
    """A job's bytes, its model where that is known, and its charge."""
    if spec.payload is None:
        return _encode(spec.args or {}, "args"), "", _handler_charge(entry, spec)
    encoded = _encode(spec.payload, "payload")
    return encoded, *_payload_charge(entry, spec, spec.payload)


def _check_limits(entry: RegistryEntry, spec: JobSpec, charge: Charge) -> None:
    config = entry.config
    if spec.timeout_seconds is not None and spec.timeout_seconds > config.attempt_seconds:
        raise InvalidJob(
            f"timeout_seconds: {spec.timeout_seconds:g} is above the queue's"
            f" timeouts.attemptSeconds ({config.attempt_seconds:g})"
        )
    for limit in entry.limits:
        amount = _over(limit, charge, entry)
        if amount is not None:
            raise LimitExceeded(
                f"{'payload' if spec.handler is None else 'handler'}: reserves {amount}"
                f" {limit.unit}, the queue's limit is {limit.limit}"
                f" in {limit.period}: it could never run; lower its maximum output or split it"
            )


def _delay_seconds(spec: JobSpec) -> float:
    if spec.not_before is None:
        return spec.delay_seconds
    return max(0.0, spec.not_before.timestamp() - time.time())


def new_job(
    entry: RegistryEntry, spec: JobSpec, *, batch: str = "", batch_key: str | None = None
) -> NewJob:
    """A validated job for the store; `batch_key` makes the id of a job that has no key of its own.

    Raises InvalidJob, JobTooLarge, LimitExceeded: each says what, where and how to mend it.
    """
    config = entry.config
    content, model, charge = _content(entry, spec)
    _check_limits(entry, spec, charge)
    key = spec.idempotency_key or batch_key
    handler = spec.handler or ""
    return NewJob(
        id=keys.new_job_id(entry.code)
        if key is None
        else keys.keyed_job_id(entry.code, queue=config.queue, tenant=spec.tenant, key=key),
        queue=config.queue,
        payload=content,
        charge=charge,
        priority=spec.priority,
        tenant=spec.tenant,
        feature=spec.feature,
        model=model,
        fingerprint=None if key is None else keys.fingerprint(_identity(handler, content)),
        delay_seconds=_delay_seconds(spec),
        deadline_seconds=spec.deadline_seconds or config.job_deadline_seconds,
        timeout_seconds=spec.timeout_seconds,
        max_attempts=spec.max_attempts,
        backoff_seconds=spec.backoff_seconds,
        correlation_id=spec.correlation_id,
        handler=handler,
        batch=batch,
    )


def new_batch_job(entry: RegistryEntry, spec: JobSpec, *, batch: str, place: int) -> NewJob:
    """A job of a batch: without a key of its own it is known by its place there.

    Raises as `new_job` does.
    """
    return new_job(entry, spec, batch=batch, batch_key=f"{batch}:{place}")


def _identity(handler: str, content: bytes) -> bytes:
    """What must be the same under one idempotency key."""
    return content if not handler else handler.encode() + b"\0" + content


def chunks(jobs: Sequence[NewJob], size: int = CHUNK_JOBS) -> Iterable[Sequence[NewJob]]:
    """Slices that one script call takes well under 5 ms for."""
    for start in range(0, len(jobs), size):
        yield jobs[start : start + size]
