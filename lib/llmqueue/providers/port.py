"""The provider port: building a request from a job's payload and classifying what comes back.

Everything but `call` in http.py is pure: bytes and dataclasses in, dataclasses out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from llmqueue.job import Charge
from llmqueue.outcome import LimitHint, Outcome, Usage
from llmqueue.profiles import ProviderProfile
from llmqueue.providers.error_body import ErrorBody
from llmqueue.providers.sse import SseEvent


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where to call and with what key; `api_key` never appears in a repr."""

    base_url: str
    api_key: str | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class HttpRequest:
    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Prepared:
    """A payload that passed validation: model, charge, and whether it streams."""

    model: str
    charge: Charge
    streaming: bool


class StreamAssembler(Protocol):
    """Puts a streamed answer together; `error` is what an error event said."""

    finished: bool
    error: ErrorBody | None

    def feed(self, event: SseEvent) -> None: ...
    def end(self) -> None:
        """The body ended in order: some servers say no other end."""
        ...

    def usage(self) -> Usage:
        """What was used so far, estimated: for answers that were cut."""
        ...

    def document(self) -> bytes:
        """The answer in its non-streamed shape."""
        ...


class Provider(Protocol):
    """One wire protocol."""

    @property
    def profile(self) -> ProviderProfile: ...

    def prepare(
        self, payload: Mapping[str, Any], *, models: tuple[str, ...], default_max_output_tokens: int
    ) -> Prepared:
        """Validate a payload at enqueue. Raises InvalidJob with a sentence that names the field."""
        ...

    def request(
        self,
        payload: Mapping[str, Any],
        endpoint: Endpoint,
        *,
        job_id: str,
        call: int | str,
        max_output_tokens: int,
    ) -> HttpRequest:
        """`call` names the call within its job, the same whenever that call is made again.

        `max_output_tokens` is written into a payload that has no bound: what was counted for the
        job at enqueue, over all its choices."""
        ...

    def parse(
        self,
        status: int,
        headers: Mapping[str, str],
        body: bytes,
        *,
        elapsed_seconds: float,
        now: float,
    ) -> Outcome:
        """Classify a complete, non-streamed answer. `headers` has lower-case names; `now` is Unix
        seconds (for HTTP dates and RFC 3339 resets)."""
        ...

    def assembler(self) -> StreamAssembler: ...

    def limit_hints(self, headers: Mapping[str, str], *, now: float) -> tuple[LimitHint, ...]: ...
