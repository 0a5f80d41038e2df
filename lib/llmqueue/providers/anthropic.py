"""Anthropic's messages.

Source: Anthropic's API reference and the anthropic SDK; facts in the design's providers page.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, cast

from llmqueue.errors import InvalidJob
from llmqueue.job import Charge
from llmqueue.outcome import LimitHint, Outcome, Usage
from llmqueue.pricing import worst_case
from llmqueue.profiles import PROFILES
from llmqueue.providers.answer import document_of, malformed
from llmqueue.providers.anthropic_stream import AnthropicStream, usage_of
from llmqueue.providers.classify import error_class, error_from_bytes, error_outcome
from llmqueue.providers.estimate import BYTES_PER_TOKEN, input_size
from llmqueue.providers.headers import anthropic_hints
from llmqueue.providers.port import Endpoint, HttpRequest, Prepared, StreamAssembler
from llmqueue.providers.validate import count_of, flag_of, messages_of, model_of
from llmqueue.states import OutcomeClass, ProviderType

API_VERSION = "2023-06-01"


class AnthropicProvider:
    """Implements `Provider` for `anthropic`."""

    def __init__(self) -> None:
        self.profile = PROFILES[ProviderType.ANTHROPIC]

    def prepare(
        self, payload: Mapping[str, Any], *, models: tuple[str, ...], default_max_output_tokens: int
    ) -> Prepared:
        model = model_of(payload, models)
        messages = messages_of(payload)
        for number, message in enumerate(messages):
            if message["role"] not in ("user", "assistant"):
                raise InvalidJob(
                    f"payload.messages[{number}].role: 'user' or 'assistant' is needed,"
                    f" got {message['role']!r}; a system prompt goes into payload.system"
                )
        output = count_of(payload, "max_tokens") or default_max_output_tokens
        tokens, bound = input_size(messages, payload.get("system"), payload.get("tools"))
        worst = worst_case(model, ProviderType.ANTHROPIC, input_tokens=bound, output_tokens=output)
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
        body.setdefault("max_tokens", default_max_output_tokens)
        headers = {
            "content-type": "application/json",
            "anthropic-version": API_VERSION,
            "idempotency-key": f"{job_id}/{call}",
            "x-client-request-id": f"{job_id}/{call}",
        }
        if endpoint.api_key:
            headers["x-api-key"] = endpoint.api_key
        url = endpoint.base_url.rstrip("/") + "/v1/messages"
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
        content = document.get("content")
        if document.get("type") != "message" or not isinstance(content, list):
            return malformed("no message", body, headers)
        usage = document.get("usage")
        found = usage_of(cast("dict[str, Any]", usage)) if isinstance(usage, dict) else None
        size = len(json.dumps(content))
        return Outcome(
            OutcomeClass.SUCCESS,
            status=status,
            usage=found or Usage(0, math.ceil(size / BYTES_PER_TOKEN), estimated=True),
            result=body,
            model=str(document.get("model") or ""),
            request_id=headers.get("request-id", ""),
            service_tier=str(cast("dict[str, Any]", usage or {}).get("service_tier") or ""),
        )

    def limit_hints(self, headers: Mapping[str, str], *, now: float) -> tuple[LimitHint, ...]:
        return anthropic_hints(headers, now=now)

    def assembler(self) -> StreamAssembler:
        return AnthropicStream()
