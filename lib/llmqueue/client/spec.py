"""One job as a producer describes it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Self, TypedDict

from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from llmqueue.app import HandlerCall
from llmqueue.errors import InvalidJob
from llmqueue.job import DEFAULT_PRIORITY, MAX_PRIORITY, MIN_PRIORITY

_LABEL = r"^[^\x00-\x1f\x7f]*$"
_YEAR_SECONDS = 31_536_000
_Delay = Annotated[float, Field(ge=0, le=_YEAR_SECONDS, allow_inf_nan=False)]
_Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Tokens = Annotated[int, Field(ge=0, le=1_000_000_000)]


class JobSpec(BaseModel):
    """One job as a producer describes it: a line of `llmqueue enqueue --file`.

    Attributes:
        payload: the provider's own request. Or:
        handler, args: a handler's name and its arguments by name.
        priority: 1–10, 10 most urgent.
        tenant, feature: take turns within a priority.
        delay_seconds, not_before: not sooner, by one of the two.
        deadline_seconds: give up after that, counted from enqueue.
        timeout_seconds: of one call, instead of the queue's.
        max_attempts: runs that may fail before the job is dead.
        backoff_seconds: waits before the 1st, 2nd, … retry, instead of the queue's.
        idempotency_key: the same key and content give the same job.
        estimated_input_tokens: instead of our guess.
        estimated_output_tokens: of one answer; at most what the payload allows. Where it allows
            anything, the call is bound to it.
        correlation_id: goes into log lines.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    payload: dict[str, Any] | None = None
    handler: Annotated[str, Field(min_length=1, max_length=128, pattern=_LABEL)] | None = None
    args: dict[str, Any] | None = None
    priority: int = Field(default=DEFAULT_PRIORITY, ge=MIN_PRIORITY, le=MAX_PRIORITY)
    tenant: str = Field(default="", max_length=64, pattern=_LABEL)
    feature: str = Field(default="", max_length=64, pattern=_LABEL)
    idempotency_key: str | None = Field(default=None, min_length=1, max_length=512)
    delay_seconds: _Delay = 0
    not_before: AwareDatetime | None = None
    deadline_seconds: _Seconds | None = None
    timeout_seconds: _Seconds | None = None
    max_attempts: int | None = Field(default=None, ge=1, le=1000)
    backoff_seconds: Annotated[tuple[_Delay, ...], Field(min_length=1, max_length=20)] | None = None
    estimated_input_tokens: _Tokens | None = None
    estimated_output_tokens: Annotated[_Tokens, Field(ge=1)] | None = None
    correlation_id: str = Field(default="", max_length=64, pattern=_LABEL)

    @model_validator(mode="after")
    def _say_one_thing(self) -> Self:
        if (self.payload is None) == (self.handler is None):
            raise ValueError("either payload or handler is needed, and not both")
        if self.args is not None and self.handler is None:
            raise ValueError("args are those of a handler: name it, or leave them out")
        if self.not_before is not None and self.delay_seconds:
            raise ValueError("delay_seconds and not_before say the same: give one of them")
        return self


class JobOptions(TypedDict, total=False):
    """What may be said of a job beside its content: fields of `JobSpec`."""

    priority: int
    tenant: str
    feature: str
    idempotency_key: str | None
    delay_seconds: float
    not_before: datetime | None
    deadline_seconds: float | None
    timeout_seconds: float | None
    max_attempts: int | None
    backoff_seconds: tuple[float, ...] | None
    estimated_input_tokens: int | None
    estimated_output_tokens: int | None
    correlation_id: str


Job = JobSpec | HandlerCall | Mapping[str, Any]
"""What can be enqueued: all of it said, a call of a handler, or a payload."""


def _sentence(exc: ValidationError) -> str:
    return "; ".join(
        f"{'.'.join(map(str, error['loc'])) or 'job'}: {error['msg'].removeprefix('Value error, ')}"
        for error in exc.errors(include_url=False, include_input=False)
    )


def parse_spec(line: str | bytes) -> JobSpec:
    """One JSON object → JobSpec. Raises InvalidJob with a sentence that names the field."""
    try:
        return JobSpec.model_validate_json(line)
    except ValidationError as exc:
        raise InvalidJob(_sentence(exc)) from None


def spec_of(job: Job, options: JobOptions | None = None) -> JobSpec:
    """A job in any of its forms → JobSpec. Raises InvalidJob."""
    if isinstance(job, JobSpec):
        if not options:
            return job
        fields: dict[str, Any] = {name: getattr(job, name) for name in job.model_fields_set}
    elif isinstance(job, HandlerCall):
        fields = {"handler": job.name, "args": dict(job.args)}
    else:
        fields = {"payload": dict(job)}
    try:
        return JobSpec.model_validate({**fields, **(options or {})})
    except ValidationError as exc:
        raise InvalidJob(_sentence(exc)) from None
