"""What both wire shapes have in common."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import JsonValue

from llmqueue_cli.simulate.catalogue import ErrorAnswer
from llmqueue_cli.simulate.limiter import Refusal
from llmqueue_cli.simulate.limits import Demand, Dimension, Level

Header = tuple[str, str]
BYTES_PER_TOKEN = 4


class BadRequest(ValueError):
    """A request that the real provider would answer 400; the text says why."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What a request asks for. `input_tokens` is the provider's own estimate."""

    model: str
    input_tokens: int
    max_output_tokens: int | None
    stream: bool = False
    include_usage: bool = True

    @property
    def demand(self) -> Demand:
        return Demand(self.input_tokens, self.max_output_tokens)


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call; `input_tokens` excludes what was read from or written to a cache."""

    input_tokens: int
    output_tokens: int
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0

    @property
    def total_input_tokens(self) -> int:
        return self.input_tokens + self.cache_read_tokens + self.cache_write_tokens

    @property
    def counted_input_tokens(self) -> int:
        """What an input limit counts: cache reads do not."""
        return self.input_tokens + self.cache_write_tokens

    @property
    def text(self) -> str:
        return "word " * max(1, self.output_tokens - self.reasoning_tokens)


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of a stream; `tokens` of the output are in it."""

    data: bytes
    tokens: int = 0


class Shape(Protocol):
    """One provider's wire format."""

    paths: frozenset[str]
    request_id_header: str

    def read(self, document: Mapping[str, Any]) -> Ask:
        """Raises BadRequest."""
        ...

    def answer(self, ask: Ask, usage: Usage, request_id: str) -> dict[str, Any]: ...

    def stream(
        self, ask: Ask, usage: Usage, request_id: str, *, with_usage: bool
    ) -> Iterator[Delta]: ...

    def error(self, words: ErrorAnswer, message: str, request_id: str) -> dict[str, Any]: ...

    def error_event(self, words: ErrorAnswer, request_id: str) -> bytes:
        """An error as an event of a stream."""
        ...

    def refusal(self, refusal: Refusal, ask: Ask) -> tuple[ErrorAnswer, str]:
        """The words for a 429 of the own limiter."""
        ...

    def limit_headers(self, levels: Mapping[Dimension, Level], *, wall: float) -> list[Header]: ...

    def negative_headers(self, *, wall: float) -> list[Header]:
        """Limit −1, remaining −1, reset now."""
        ...

    def wait_headers(self, seconds: float) -> list[Header]:
        """When to come back, as honest as whole seconds allow."""
        ...


def estimate_tokens(*parts: JsonValue) -> int:
    """A provider's own guess of the input: a quarter of the bytes of all text."""
    return math.ceil(sum(map(_text_bytes, parts)) / BYTES_PER_TOKEN)


def _text_bytes(part: JsonValue) -> int:
    if isinstance(part, str):
        return len(part.encode("utf-8", "surrogatepass"))
    if isinstance(part, list):
        return sum(map(_text_bytes, part))
    if isinstance(part, dict):
        return sum(map(_text_bytes, part.values()))
    return 0


def read_common(document: Mapping[str, Any]) -> tuple[str, list[Any]]:
    """(model, messages). Raises BadRequest."""
    model: JsonValue = document.get("model")
    messages: JsonValue = document.get("messages")
    if not isinstance(model, str) or not model:
        raise BadRequest("you must provide a model parameter")
    if not isinstance(messages, list) or not messages:
        raise BadRequest("messages: a list with at least one message is required")
    return model, messages


def read_maximum(document: Mapping[str, Any], *names: str) -> int | None:
    """The first of several names for the output's maximum. Raises BadRequest."""
    for name in names:
        value = document.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise BadRequest(f"{name}: must be a whole number of at least 1")
        return value
    return None


def pieces(tokens: int, most: int = 20) -> Iterator[int]:
    """Split an output into at most `most` pieces of at least one token."""
    count = max(1, min(most, tokens))
    for index in range(count):
        yield tokens * (index + 1) // count - tokens * index // count
