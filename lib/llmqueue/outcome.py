"""What came back from one call, as provider parsing reports it and the store settles it."""

from __future__ import annotations

from dataclasses import dataclass, field

from llmqueue.states import OutcomeClass, Severity


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call. `input_tokens` and `output_tokens` are totals (input includes cached and
    cache-written, output includes reasoning); the details are parts of them.

    `estimated` = the provider did not report it.
    """

    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    estimated: bool = False
    cache_write_1h_tokens: int = 0
    """Of the cache-written ones, those kept for an hour: they have a price of their own."""


@dataclass(frozen=True, slots=True)
class LimitHint:
    """What response headers say of one limit: unit (`requests`, `tokens`, `input_tokens`,
    `output_tokens`), and any of limit, remaining, reset_seconds (until full again)."""

    unit: str
    limit: int | None = None
    remaining: int | None = None
    reset_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """One call's outcome.

    Attributes:
        kind: its class.
        sent: False where no byte of the request left (connect errors): costs nothing.
        retry_after_seconds: as the provider asked, None where it did not say.
        pause_until: Unix seconds until which a quota said it is closed, or None.
        usage: None where nothing can have been produced.
        result: body for the job's owner, on SUCCESS only.
        message: what a person reads; ≤ 1 KiB, scrubbed of secrets.
    """

    kind: OutcomeClass
    sent: bool = True
    status: int | None = None
    message: str = ""
    code: str = ""
    retry_after_seconds: float | None = None
    pause_until: float | None = None
    usage: Usage | None = None
    result: bytes | None = None
    model: str = ""
    request_id: str = ""
    service_tier: str = ""
    limits: tuple[LimitHint, ...] = field(default=())
    severity: Severity = Severity.ERROR
    own: bool = False
    """A handler's own code ended, well or not: says nothing of provider and credential."""
