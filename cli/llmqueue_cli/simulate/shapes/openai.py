"""OpenAI's chat completions, as in its API reference and SDK."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping
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

_LIMIT_WORDS = {
    Dimension.REQUESTS: ("requests", "RPM"),
    Dimension.TOKENS: ("tokens", "TPM"),
    Dimension.INPUT_TOKENS: ("tokens", "input TPM"),
    Dimension.OUTPUT_TOKENS: ("tokens", "output TPM"),
}


def go_duration(seconds: float) -> str:
    """`6m0s`, `2m59.56s`, `12ms`, as Go prints durations; never shorter than given."""
    milliseconds = math.ceil(round(seconds * 1000, 6))
    if milliseconds < 1000:
        return f"{milliseconds}ms" if milliseconds else "0s"
    minutes, rest = divmod(milliseconds, 60_000)
    hours, minutes = divmod(minutes, 60)
    text = f"{rest / 1000:.3f}".rstrip("0").rstrip(".") + "s"
    if hours:
        return f"{hours}h{minutes}m{text}"
    return f"{minutes}m{text}" if minutes else text


def _event(document: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(document).encode() + b"\n\n"


class OpenAIShape:
    """Implements `Shape`."""

    paths = frozenset({"/v1/chat/completions", "/chat/completions"})
    request_id_header = "x-request-id"

    def read(self, document: Mapping[str, Any]) -> Ask:
        model, messages = read_common(document)
        choices = read_maximum(document, "n") or 1
        most = read_maximum(document, "max_completion_tokens", "max_tokens")
        stream = document.get("stream", False)
        if not isinstance(stream, bool | None):
            raise BadRequest("stream: must be a boolean")
        options: Any = document.get("stream_options")
        return Ask(
            model,
            estimate_tokens(messages, document.get("tools")),
            None if most is None else most * choices,
            stream=bool(stream),
            include_usage=bool(isinstance(options, dict) and options.get("include_usage")),  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
        )

    @staticmethod
    def _usage(usage: Usage) -> dict[str, Any]:
        return {
            "prompt_tokens": usage.total_input_tokens,
            "completion_tokens": usage.output_tokens,
            "total_tokens": usage.total_input_tokens + usage.output_tokens,
            "prompt_tokens_details": {"cached_tokens": usage.cache_read_tokens, "audio_tokens": 0},
            "completion_tokens_details": {
                "reasoning_tokens": usage.reasoning_tokens,
                "audio_tokens": 0,
                "accepted_prediction_tokens": 0,
                "rejected_prediction_tokens": 0,
            },
        }

    def answer(self, ask: Ask, usage: Usage, request_id: str) -> dict[str, Any]:
        message: dict[str, Any] = {
            "role": "assistant",
            "content": usage.text,
            "refusal": None,
            "annotations": [],
        }
        return {
            "id": f"chatcmpl-{request_id}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": ask.model,
            "choices": [
                {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
            ],
            "usage": self._usage(usage),
            "service_tier": "default",
            "system_fingerprint": "fp_simulated",
        }

    def stream(
        self, ask: Ask, usage: Usage, request_id: str, *, with_usage: bool
    ) -> Iterator[Delta]:
        frame = {
            "id": f"chatcmpl-{request_id}",
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": ask.model,
            "service_tier": "default",
            "system_fingerprint": "fp_simulated",
            # With include_usage every chunk has the field, null but for the last one.
            **({"usage": None} if ask.include_usage else {}),
        }

        def chunk(delta: dict[str, Any], reason: str | None = None) -> bytes:
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
            return _event({**frame, "choices": [choice]})

        yield Delta(chunk({"role": "assistant", "content": "", "refusal": None}))
        for tokens in pieces(usage.output_tokens):
            yield Delta(chunk({"content": "word " * tokens}), tokens)
        yield Delta(chunk({}, "stop"))
        if ask.include_usage and with_usage:
            yield Delta(_event({**frame, "choices": [], "usage": self._usage(usage)}))
        yield Delta(b"data: [DONE]\n\n")

    def error(self, words: ErrorAnswer, message: str, request_id: str) -> dict[str, Any]:
        kind, code = words.openai
        return {"error": {"message": message, "type": kind, "param": None, "code": code}}

    def error_event(self, words: ErrorAnswer, request_id: str) -> bytes:
        return _event(self.error(words, words.message, request_id))

    def refusal(self, refusal: Refusal, ask: Ask) -> tuple[ErrorAnswer, str]:
        kind, unit = _LIMIT_WORDS[refusal.dimension]
        if math.isinf(refusal.wait_seconds):
            message = (
                f"Request too large for {ask.model} on {unit}: Limit {refusal.limit},"
                f" Requested {refusal.requested}."
            )
        else:
            message = (
                f"Rate limit reached for {ask.model} on {unit}: Limit {refusal.limit}, Used"
                f" {refusal.used}, Requested {refusal.requested}. Please try again in"
                f" {go_duration(refusal.wait_seconds)}."
            )
        return ErrorAnswer(429, message, (kind, "rate_limit_exceeded")), message

    def limit_headers(self, levels: Mapping[Dimension, Level], *, wall: float) -> list[Header]:
        found: list[Header] = []
        for dimension in (Dimension.REQUESTS, Dimension.TOKENS):
            level = levels.get(dimension)
            if level:
                found += [
                    (f"x-ratelimit-limit-{dimension}", str(level.limit)),
                    (f"x-ratelimit-remaining-{dimension}", str(level.remaining)),
                    (f"x-ratelimit-reset-{dimension}", go_duration(level.reset_seconds)),
                ]
        return found

    def negative_headers(self, *, wall: float) -> list[Header]:
        return [
            (f"x-ratelimit-{field}-{unit}", value)
            for unit in ("requests", "tokens")
            for field, value in (("limit", "-1"), ("remaining", "-1"), ("reset", "0"))
        ]

    def wait_headers(self, seconds: float) -> list[Header]:
        milliseconds = max(1, math.ceil(seconds * 1000))
        return [
            ("retry-after", str(math.ceil(milliseconds / 1000))),
            ("retry-after-ms", str(milliseconds)),
        ]
