"""Anthropic's messages, as in its API reference and SDK."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from llmqueue_cli.simulate.catalogue import ErrorAnswer
from llmqueue_cli.simulate.limiter import Refusal
from llmqueue_cli.simulate.limits import Dimension, Level
from llmqueue_cli.simulate.shapes.port import (
    Ask,
    BadRequest,
    Delta,
    Header,
    Usage,
    estimate_tokens,
    pieces,
    read_common,
    read_maximum,
)


def rfc3339(at: float) -> str:
    """Unix seconds as `2026-11-30T06:20:22Z`, rounded up: never earlier than true."""
    return datetime.fromtimestamp(math.ceil(at), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _event(document: Mapping[str, Any]) -> bytes:
    return f"event: {document['type']}\ndata: {json.dumps(document)}\n\n".encode()


class AnthropicShape:
    """Implements `Shape`."""

    paths = frozenset({"/v1/messages"})
    request_id_header = "request-id"

    def read(self, document: Mapping[str, Any]) -> Ask:
        model, messages = read_common(document)
        most = read_maximum(document, "max_tokens")
        if most is None:
            raise BadRequest("max_tokens: Field required")
        stream = document.get("stream", False)
        if not isinstance(stream, bool | None):
            raise BadRequest("stream: must be a boolean")
        tokens = estimate_tokens(document.get("system"), messages, document.get("tools"))
        return Ask(model, tokens, most, stream=bool(stream))

    @staticmethod
    def _usage(usage: Usage, output_tokens: int) -> dict[str, Any]:
        return {
            "input_tokens": usage.input_tokens,
            "cache_creation_input_tokens": usage.cache_write_tokens,
            "cache_read_input_tokens": usage.cache_read_tokens,
            "output_tokens": output_tokens,
            "service_tier": "standard",
        }

    def answer(self, ask: Ask, usage: Usage, request_id: str) -> dict[str, Any]:
        return {
            **self._message(ask, usage, request_id),
            "content": [{"type": "text", "text": usage.text}],
            "stop_reason": "end_turn",
            "usage": self._usage(usage, usage.output_tokens),
        }

    def _message(self, ask: Ask, usage: Usage, request_id: str) -> dict[str, Any]:
        return {
            "id": f"msg_{request_id}",
            "type": "message",
            "role": "assistant",
            "model": ask.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": self._usage(usage, 1),
        }

    def stream(
        self, ask: Ask, usage: Usage, request_id: str, *, with_usage: bool
    ) -> Iterator[Delta]:
        message = self._message(ask, usage, request_id)
        if not with_usage:
            del message["usage"]
        block = {"type": "text", "text": ""}
        yield Delta(_event({"type": "message_start", "message": message}))
        yield Delta(_event({"type": "content_block_start", "index": 0, "content_block": block}))
        yield Delta(_event({"type": "ping"}))
        for tokens in pieces(usage.output_tokens):
            delta = {"type": "text_delta", "text": "word " * tokens}
            yield Delta(_event({"type": "content_block_delta", "index": 0, "delta": delta}), tokens)
        yield Delta(_event({"type": "content_block_stop", "index": 0}))
        end: dict[str, Any] = {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
        }
        if with_usage:
            end["usage"] = self._usage(usage, usage.output_tokens)
        yield Delta(_event(end))
        yield Delta(_event({"type": "message_stop"}))

    def error(self, words: ErrorAnswer, message: str, request_id: str) -> dict[str, Any]:
        error: dict[str, Any] = {"type": words.anthropic, "message": message}
        if words.anthropic_details:
            error["details"] = {"error_code": words.anthropic_details}
        return {"type": "error", "error": error, "request_id": request_id}

    def error_event(self, words: ErrorAnswer, request_id: str) -> bytes:
        return _event(self.error(words, words.message, request_id))

    def refusal(self, refusal: Refusal, ask: Ask) -> tuple[ErrorAnswer, str]:
        unit = refusal.dimension.replace("_", " ")
        message = (
            f"This request would exceed your organization's rate limit of {refusal.limit} {unit}"
            f" per minute (model: {ask.model})."
        )
        return ErrorAnswer(429, message, anthropic="rate_limit_error"), message

    def limit_headers(self, levels: Mapping[Dimension, Level], *, wall: float) -> list[Header]:
        found: list[Header] = []
        for dimension, level in levels.items():
            prefix = f"anthropic-ratelimit-{dimension.replace('_', '-')}"
            found += [
                (f"{prefix}-limit", str(level.limit)),
                (f"{prefix}-remaining", str(level.remaining)),
                (f"{prefix}-reset", rfc3339(wall + level.reset_seconds)),
            ]
        return found

    def negative_headers(self, *, wall: float) -> list[Header]:
        prefix = "anthropic-ratelimit-requests"
        return [
            (f"{prefix}-limit", "-1"),
            (f"{prefix}-remaining", "-1"),
            (f"{prefix}-reset", rfc3339(wall)),
        ]

    def wait_headers(self, seconds: float) -> list[Header]:
        return [("retry-after", str(max(1, math.ceil(seconds))))]
