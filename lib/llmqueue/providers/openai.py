"""OpenAI's chat completions, and servers that speak the same protocol.

Source: OpenAI's API reference and the openai SDK; facts in the design's providers page.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, cast

from llmqueue.job import Charge
from llmqueue.outcome import LimitHint, Outcome, Usage
from llmqueue.pricing import worst_case
from llmqueue.profiles import PROFILES
from llmqueue.providers.answer import count, document_of, malformed
from llmqueue.providers.classify import error_class, error_from_bytes, error_outcome
from llmqueue.providers.estimate import BYTES_PER_TOKEN, input_size
from llmqueue.providers.headers import openai_hints
from llmqueue.providers.openai_stream import OpenAIStream
from llmqueue.providers.port import Endpoint, HttpRequest, Prepared, StreamAssembler
from llmqueue.providers.validate import count_of, flag_of, messages_of, model_of
from llmqueue.states import OutcomeClass, ProviderType


def usage_of(document: Mapping[str, Any]) -> Usage | None:
    """Tokens in either of OpenAI's shapes, DeepSeek's cache fields too; None where missing."""
    usage = document.get("usage")
    if not isinstance(usage, dict):
        return None
    fields = cast("dict[str, Any]", usage)
    given = count(fields, "prompt_tokens")
    produced = count(fields, "completion_tokens")
    details = "prompt_tokens_details", "completion_tokens_details"
    if given is None and produced is None:
        given, produced = count(fields, "input_tokens"), count(fields, "output_tokens")
        details = "input_tokens_details", "output_tokens_details"
    if given is None or produced is None:
        return None
    cached = count(fields, details[0], "cached_tokens")
    if cached is None:
        cached = count(fields, "prompt_cache_hit_tokens")
    return Usage(
        given,
        produced,
        cached_tokens=min(cached or 0, given),
        reasoning_tokens=count(fields, details[1], "reasoning_tokens") or 0,
    )


class OpenAIProvider:
    """Implements `Provider` for `openai` and `openai-compatible`."""

    def __init__(self, kind: ProviderType) -> None:
        self.kind = kind
        self.profile = PROFILES[kind]

    def prepare(
        self, payload: Mapping[str, Any], *, models: tuple[str, ...], default_max_output_tokens: int
    ) -> Prepared:
        model = model_of(payload, models)
        messages = messages_of(payload)
        choices = count_of(payload, "n") or 1
        most = count_of(payload, "max_completion_tokens") or count_of(payload, "max_tokens")
        output = (most or default_max_output_tokens) * choices
        tokens, bound = input_size(
            messages, payload.get("tools"), payload.get("functions"), payload.get("response_format")
        )
        worst = worst_case(model, self.kind, input_tokens=bound, output_tokens=output)
        return Prepared(model, Charge(tokens, output, worst), flag_of(payload, "stream"))

    def request(
        self,
        payload: Mapping[str, Any],
        endpoint: Endpoint,
        *,
        job_id: str,
        call: int,
        default_max_output_tokens: int,
    ) -> HttpRequest:
        body = dict(payload)
        if not (body.get("max_completion_tokens") or body.get("max_tokens")):
            # Older compatible servers know only the older name.
            newer = self.kind is ProviderType.OPENAI
            body["max_completion_tokens" if newer else "max_tokens"] = default_max_output_tokens
        if body.get("stream"):
            options = body.get("stream_options")
            given = cast("dict[str, Any]", options) if isinstance(options, dict) else {}
            body["stream_options"] = {**given, "include_usage": True}
        headers = {
            "content-type": "application/json",
            "idempotency-key": f"{job_id}/{call}",
            "x-client-request-id": f"{job_id}/{call}",
        }
        if endpoint.api_key:
            headers["authorization"] = f"Bearer {endpoint.api_key}"
        url = endpoint.base_url.rstrip("/") + "/chat/completions"
        return HttpRequest("POST", url, headers, json.dumps(body).encode())

    def parse(
        self,
        status: int,
        headers: Mapping[str, str],
        body: bytes,
        *,
        elapsed_seconds: float,
        now: float,
    ) -> Outcome:
        if status != 200:
            error = error_from_bytes(body)
            kind = error_class(status, error, elapsed_seconds=elapsed_seconds)
            return error_outcome(kind, error, status=status, headers=headers, now=now)
        document = document_of(body, headers, now=now)
        if isinstance(document, Outcome):
            return document
        choices = document.get("choices")
        if not isinstance(choices, list) or not choices:
            return malformed("no choices", body, headers)
        return Outcome(
            OutcomeClass.SUCCESS,
            status=status,
            usage=usage_of(document) or self._estimate(cast("list[Any]", choices)),
            result=body,
            model=str(document.get("model") or ""),
            request_id=headers.get("x-request-id", ""),
            service_tier=str(document.get("service_tier") or ""),
        )

    @staticmethod
    def _estimate(choices: list[Any]) -> Usage:
        """Usage where the answer has none: what was produced, by its length."""
        size = len(json.dumps(choices))
        return Usage(0, math.ceil(size / BYTES_PER_TOKEN), estimated=True)

    def limit_hints(self, headers: Mapping[str, str], *, now: float) -> tuple[LimitHint, ...]:
        return openai_hints(headers, now=now)

    def assembler(self) -> StreamAssembler:
        return OpenAIStream()
