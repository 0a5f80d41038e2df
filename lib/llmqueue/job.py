"""Jobs as producers submit them and as readers see them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llmqueue.states import JobState

MIN_PRIORITY, DEFAULT_PRIORITY, MAX_PRIORITY = 1, 5, 10
MAX_PAYLOAD_BYTES = 256 * 1024
MAX_RESULT_BYTES = 1024 * 1024
BANDS = 4


def band_of(priority: int) -> int:
    """Priority class of a priority: 0 (≥ 9) is served first, 3 (< 4) last."""
    if priority >= 9:
        return 0
    if priority >= 7:
        return 1
    return 2 if priority >= 4 else 3


@dataclass(frozen=True, slots=True)
class Charge:
    """What one call reserves: tokens as the provider counts them, worst-case money.

    `worst_nano_usd` is None where no price is known.
    """

    input_tokens: int
    output_tokens: int
    worst_nano_usd: int | None = None


@dataclass(frozen=True, slots=True)
class NewJob:
    """A validated job, ready for the store.

    `payload` is never parsed by the store. `id` was made by the client.
    `fingerprint` is the digest of the raw bytes under an idempotency key, else None.
    """

    id: str
    queue: str
    payload: bytes
    charge: Charge
    priority: int = DEFAULT_PRIORITY
    tenant: str = ""
    feature: str = ""
    model: str = ""
    fingerprint: str | None = None
    delay_seconds: float = 0.0
    deadline_seconds: float | None = None
    timeout_seconds: float | None = None
    max_attempts: int | None = None
    backoff_seconds: tuple[float, ...] | None = None
    correlation_id: str = ""
    handler: str = ""
    """Name of the function that runs it, with the payload as its arguments; "" = the payload is the
    provider's request."""


@dataclass(frozen=True, slots=True)
class Enqueued:
    """Answer to an enqueue; `duplicate` = the idempotency key found the job that exists."""

    id: str
    state: JobState
    duplicate: bool = False


@dataclass(frozen=True, slots=True)
class JobView:
    """All that is known of a job. Times are Unix seconds; `attempts` and `error` plain JSON."""

    id: str
    queue: str
    state: JobState
    priority: int
    tenant: str
    feature: str
    model: str
    created_at: float
    finished_at: float | None
    not_before: float | None
    deadline_at: float | None
    attempts_used: int
    attempts: list[dict[str, Any]]
    payload: bytes | None
    result: bytes | None
    error: dict[str, Any] | None
    """`class`, `message`, `status`, `severity`, `reason` of what ended the job, or None."""
    cost_nano_usd: int | None
    possible_duplicate: bool
