"""What the operator writes into an LLMQueue's status."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, StringConstraints

from llmqueue.spec.fields import REASON_PATTERN, Int, Section, unique

Count = Annotated[Int, Field(ge=0)]
Reason = Annotated[
    str,
    StringConstraints(min_length=1, max_length=1024, pattern=REASON_PATTERN),
]
BoundByName = Literal[
    "RequestsPerMinute",
    "InputTokens",
    "OutputTokens",
    "Tokens",
    "RequestsPerDay",
    "TokensPerDay",
    "InFlight",
    "Spend",
    "Share",
    "Backlog",
    "MaxReplicas",
    "MinReplicas",
    "Override",
    "Held",
    "Idle",
]


class StatusSection(Section):
    """A newer operator may have written more: its fields are passed over, so that it can be rolled
    back."""

    model_config = ConfigDict(extra="ignore")


class Condition(StatusSection):
    type: Annotated[str, StringConstraints(min_length=1, max_length=316)]
    status: Literal["True", "False", "Unknown"]
    observed_generation: Count | None = None
    last_transition_time: datetime
    reason: Reason
    message: Annotated[str, StringConstraints(max_length=32_768)]


class JobCounts(StatusSection):
    ready: Count | None = None
    delayed: Count | None = None
    leased: Count | None = None
    sent: Count | None = None
    review: Count | None = None
    succeeded: Count | None = None
    dead: Count | None = None
    cancelled: Count | None = None
    expired: Count | None = None


class LLMQueueStatus(StatusSection):
    observed_generation: Count | None = None
    observed_time: datetime | None = None
    conditions: Annotated[tuple[Condition, ...], Field(max_length=32), *unique("type")] | None = (
        None
    )
    budget: Annotated[str, StringConstraints(max_length=256)] | None = None
    desired: Count | None = None
    workers: Count | None = None
    draining: Count | None = None
    replicas: Count | None = None
    bound_by: BoundByName | None = None
    reason: Reason | None = None
    message: Annotated[str, StringConstraints(max_length=32_768)] | None = None
    next_change_time: datetime | None = None
    effective_requests_per_minute: Count | None = None
    eta_seconds: Count | None = None
    slot_milliseconds: Count | None = None
    in_flight: Count | None = None
    jobs: JobCounts | None = None
