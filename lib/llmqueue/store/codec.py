"""Between dataclasses and what the scripts read: milliseconds, short names, no nulls."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pydantic import TypeAdapter

from llmqueue.config import (
    BudgetConfig,
    Limit,
    QueueConfig,
    RegistryEntry,
    Schedule,
    TenantLimits,
)
from llmqueue.days import day_starts
from llmqueue.job import NewJob, band_of
from llmqueue.outcome import LimitHint
from llmqueue.states import JobState, LimitUnit, OutcomeClass, Severity
from llmqueue.store.port import FinishedCall, Held, Settlement

STATES = {
    "R": JobState.READY,
    "D": JobState.DELAYED,
    "L": JobState.LEASED,
    "S": JobState.SENT,
    "V": JobState.REVIEW,
    "F": JobState.SUCCEEDED,
    "X": JobState.DEAD,
    "C": JobState.CANCELLED,
    "E": JobState.EXPIRED,
}

_ENTRY: TypeAdapter[RegistryEntry] = TypeAdapter(RegistryEntry)
_MIN_SUB_WINDOW_MS = 500
_SUB_WINDOWS = 120
_MARGIN_MS = 1000
"""A charge leaves its window this long after it might: what a request may take on its way."""


def dumps(value: Any) -> str:
    """Compact JSON; the same value always gives the same text."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def _without_nulls(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def limit_json(limit: Limit, *, at: float) -> dict[str, Any]:
    sub_window = max(_MIN_SUB_WINDOW_MS, limit.seconds * 1000 // _SUB_WINDOWS)
    zone = limit.time_zone
    return _without_nulls(
        {
            "unit": str(limit.unit),
            "seconds": limit.seconds,
            "limit": limit.limit,
            "name": limit.name,
            "sub_ms": sub_window,
            "keep_ms": limit.seconds * 1000 + _MARGIN_MS,
            "paced": limit.paced,
            "days": None if zone is None else [s * 1000 for s in day_starts(zone, at=at)],
        }
    )


def budget_json(config: BudgetConfig, queues: Sequence[QueueConfig], *, at: float) -> str:
    """`at` in Unix seconds: scripts know no time zones, so the days of some weeks are listed."""
    keep = max(
        (max(q.retention.succeeded_seconds, q.retention.failed_seconds) for q in queues), default=0
    )
    return dumps(
        _without_nulls(
            {
                "limits": [limit_json(limit, at=at) for limit in config.limits],
                "learn_up": config.learn_up,
                "header_window_ms": None
                if config.header_window_seconds is None
                else milliseconds(config.header_window_seconds),
                "queues": [q.queue for q in queues],
                "max_in_flight": config.max_in_flight,
                "token_rule": config.token_rule,
                "token_accounting": config.token_accounting,
                "learned_output": config.learned_output,
                "breaker": {
                    "failures": config.breaker.failures,
                    "window_ms": milliseconds(config.breaker.window_seconds),
                    "open_ms": milliseconds(config.breaker.open_seconds),
                    "probe_ms": milliseconds(config.breaker.probe_seconds),
                },
                "lease_ms": milliseconds(config.lease_seconds),
                "ramp_ms": milliseconds(config.ramp_seconds),
                "slow_ramp_ms": milliseconds(config.slow_ramp_seconds),
                "idle_ramp_ms": milliseconds(config.idle_ramp_seconds),
                "max_crashes": config.max_crashes,
                "outcome_memory_ms": milliseconds(config.outcome_memory_seconds),
                "ledger_ms": milliseconds(keep),
            }
        )
    )


def _schedule_json(schedule: Schedule) -> dict[str, Any]:
    return _without_nulls(
        {
            "delays_ms": [milliseconds(delay) for delay in schedule.delays_seconds],
            "max_attempts": schedule.max_attempts,
        }
    )


def _tenant_json(limits: TenantLimits | None) -> dict[str, Any] | None:
    if limits is None or limits == TenantLimits():
        return None
    rate = limits.requests_per_second
    return _without_nulls(
        {
            "every_ms": None if rate is None else 1000 / rate,
            "burst": limits.burst or rate or 1,
            "in_flight": limits.max_in_flight,
        }
    )


def queue_json(config: QueueConfig) -> str:
    retry, keep = config.retry, config.retention
    bands = config.band_max_in_flight
    return dumps(
        _without_nulls(
            {
                "suspended": config.suspended,
                "handlers": config.handlers or None,
                # A handler's calls are checked when they are made, a payload was at enqueue.
                "default_output": config.default_max_output_tokens if config.handlers else None,
                "models": (list(config.models) or None) if config.handlers else None,
                "weight": config.weight,
                "max_jobs": config.max_jobs,
                "max_bytes": config.max_bytes,
                "tenant": _tenant_json(config.per_tenant),
                # 0 = none: what is null in the middle of an array would end it.
                "bands": [most or 0 for most in bands] if any(bands) else None,
                "idempotency_ms": milliseconds(config.idempotency_seconds),
                "retry": {
                    "rate": _schedule_json(retry.rate_limit),
                    "overload": _schedule_json(retry.overload),
                    "transient": _schedule_json(retry.transient),
                    "malformed": _schedule_json(retry.malformed),
                    "jitter_percent": retry.jitter_percent,
                },
                "unknown": {
                    "policy": retry.unknown_outcome.policy,
                    "below_nano_usd": retry.unknown_outcome.auto_retry_below_nano_usd,
                    "max_retries": retry.unknown_outcome.max_auto_retries,
                },
                "retention": _without_nulls(
                    {
                        "succeeded_ms": milliseconds(keep.succeeded_seconds),
                        "failed_ms": milliseconds(keep.failed_seconds),
                        "max_succeeded": keep.max_succeeded,
                        "max_failed": keep.max_failed,
                    }
                ),
            }
        )
    )


def entry_json(entry: RegistryEntry) -> bytes:
    return _ENTRY.dump_json(entry)


def entry_from_json(raw: bytes) -> RegistryEntry:
    return _ENTRY.validate_json(raw)


def new_job_json(job: NewJob) -> str:
    """Metadata of a job for enqueue.lua: `f` are the fields of its hash."""
    optional = {
        "t": job.tenant or None,
        "f": job.feature or None,
        "v": job.model or None,
        "u": job.charge.worst_nano_usd,
        "T": None if job.timeout_seconds is None else milliseconds(job.timeout_seconds),
        "M": job.max_attempts,
        "B": None
        if job.backoff_seconds is None
        else dumps([milliseconds(delay) for delay in job.backoff_seconds]),
        "C": job.correlation_id or None,
        "H": job.handler or None,
        "bi": job.batch or None,
    }
    fields = {
        "p": job.priority,
        "i": job.charge.input_tokens,
        "o": job.charge.output_tokens,
        **_without_nulls(optional),
    }
    return dumps(
        _without_nulls(
            {
                "i": job.id,
                "b": band_of(job.priority),
                "h": job.fingerprint,
                "dl": milliseconds(job.delay_seconds) if job.delay_seconds > 0 else None,
                "de": None if job.deadline_seconds is None else milliseconds(job.deadline_seconds),
                "f": {name: str(value) for name, value in fields.items()},
            }
        )
    )


_NOT_HELD = ("", "", "")


def held_fields(held: Held | None) -> tuple[str | int, str | int, str | int]:
    """Of a lease for heartbeat.lua: ms since it was sent (-1: it was not), reserved tokens."""
    if held is None:
        return _NOT_HELD
    sent_ms = -1 if held.sent_seconds is None else milliseconds(held.sent_seconds)
    return sent_ms, held.input_tokens, held.output_tokens


def _derived_wait(hints: Sequence[LimitHint], charge: int) -> tuple[int | None, int | None]:
    """Wait that response headers suggest, and their time to a full budget, both ms.

    Only the exhausted limit counts, not the first header found.
    """
    waits: list[tuple[int, int]] = []
    for hint in hints:
        if hint.reset_seconds is None or not hint.limit:
            continue
        need = 1 if hint.unit == LimitUnit.REQUESTS else max(1, charge)
        if hint.remaining is not None and hint.remaining >= need:
            continue
        reset = milliseconds(hint.reset_seconds)
        waits.append((min(reset, round(reset * need / hint.limit)), reset))
    return max(waits, default=(None, None))


def _said_limits(hints: Sequence[LimitHint]) -> list[list[str | int]] | None:
    """[unit, window ms, limit] of each hint; a window of 0 is not known.

    `reset` is the time until the limit is full again at its even pace, which tells the window:
    where 30 of 14,400 requests come back in 180 s, all of them come back in a day.
    """
    said: list[list[str | int]] = []
    for hint in hints:
        if not hint.limit:
            continue
        window_ms = 0
        used = 0 if hint.remaining is None else hint.limit - hint.remaining
        if hint.reset_seconds and used > 0:
            window_ms = round(hint.reset_seconds * 1000 * hint.limit / used)
        said.append([hint.unit, window_ms, hint.limit])
    return said or None


_NO_RETRY_HINT = frozenset({OutcomeClass.SUCCESS, OutcomeClass.PERMANENT})


def settlement_json(item: Settlement, *, now: float) -> str:
    """One run for settle.lua; `now` in Unix seconds turns instants into durations."""
    return dumps(_settlement(item, now=now))


def finished_call_json(call: FinishedCall, *, now: float) -> str:
    """One call for finish_call.lua."""
    item = _settlement(call.settlement, now=now)
    return dumps({**item, "n": call.number, "jn": call.name})


def _settlement(item: Settlement, *, now: float) -> dict[str, Any]:
    outcome = item.outcome
    usage = outcome.usage
    asked = None
    if outcome.retry_after_seconds is not None and outcome.kind not in _NO_RETRY_HINT:
        asked = milliseconds(outcome.retry_after_seconds)
    derived, cap = _derived_wait(outcome.limits, usage.input_tokens if usage else 1)
    return _without_nulls(
        {
            "i": item.id,
            "x": item.fence,
            "c": str(outcome.kind),
            "s": outcome.sent,
            "ra": asked,
            "rs": derived,
            "rc": cap,
            "pu": None
            if outcome.pause_until is None
            else max(0, milliseconds(outcome.pause_until - now)),
            "ni": usage.input_tokens if usage else None,
            "no": usage.output_tokens if usage else None,
            "est": True if usage and usage.estimated else None,
            "part": True if usage else None,
            "ca": item.credential,
            "j": round(item.jitter, 4),
            "l": _counted_call(item),
            "q": None if outcome.severity is Severity.ERROR else str(outcome.severity),
            "m": outcome.message[:300],
            "h": _said_limits(outcome.limits),
            "own": outcome.own or None,
        }
    )


def _counted_call(item: Settlement) -> list[str | int] | None:
    """What `_meters.lua` counts of a ledger entry; None where no call was made."""
    entry = item.entry
    if entry is None:
        return None
    took = milliseconds(entry["finished"] - entry["started"]) if "finished" in entry else -1
    cached, written = entry.get("cached_tokens", 0), entry.get("cache_write_tokens", 0)
    reasoning = entry.get("reasoning_tokens", 0)
    tokens = [
        max(0, entry.get("input_tokens", 0) - cached - written),
        max(0, entry.get("output_tokens", 0) - reasoning),
        cached,
        written,
        reasoning,
    ]
    while tokens and not tokens[-1]:
        tokens.pop()
    cost = -1 if item.cost_nano_usd is None else item.cost_nano_usd
    return [entry.get("model", ""), took, cost, *tokens]


def record_json(item: Settlement) -> str:
    """The attempt as its job's readers and the ledger see it."""
    outcome = item.outcome
    record: dict[str, Any] = {
        "fence": item.fence,
        "class": str(outcome.kind),
        "sent": outcome.sent,
        **(item.entry or {}),
    }
    if outcome.kind is not OutcomeClass.SUCCESS:
        record.update(
            _without_nulls(
                {
                    "status": outcome.status,
                    "message": outcome.message or None,
                    "code": outcome.code or None,
                    "severity": str(outcome.severity),
                    "retry_after": outcome.retry_after_seconds,
                }
            )
        )
    if item.entry is not None:
        record["nano_usd"] = item.cost_nano_usd
    return dumps(record)
