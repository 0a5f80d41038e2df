"""Anthropic's messages.

Source: Anthropic's API reference and the anthropic SDK; facts in the design's providers page.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llmqueue.errors import InvalidJob
from llmqueue.outcome import LimitHint, Outcome, Usage
from llmqueue.profiles import PROFILES
from llmqueue.providers.answer import answer_of, malformed
from llmqueue.providers.anthropic_stream import AnthropicStream, usage_of
from llmqueue.providers.charging import charge_of
from llmqueue.providers.estimate import input_size, output_tokens
from llmqueue.providers.fields import items, mapping, text
from llmqueue.providers.headers import anthropic_hints, request_id
from llmqueue.providers.media import anthropic_media
from llmqueue.providers.port import Endpoint, HttpRequest, Prepared, StreamAssembler
from llmqueue.providers.validate import (
    call_headers,
    count_of,
    encoded,
    flag_of,
    messages_of,
    model_of,
)
from llmqueue.states import OutcomeClass, ProviderType

API_VERSION = "2023-06-01"


def _unbounded(payload: Mapping[str, Any]) -> bool:
    """Whether it may cost what tokens don't say: tools that run at the provider, dearer tiers."""
    kinds = [mapping(tool).get("type", "custom") for tool in items(payload.get("tools"))]
    return (
        any(kind != "custom" for kind in kinds)
        or payload.get("mcp_servers") is not None
        or payload.get("container") is not None
        or payload.get("speed") not in (None, "standard")
    )


class AnthropicProvider:
    """Implements `Provider` for `anthropic`."""

    def __init__(self) -> None:
        self.profile = PROFILES[ProviderType.ANTHROPIC]

    def prepare(
        self, payload: Mapping[str, Any], *, models: tuple[str, ...], default_max_output_tokens: int
    ) -> Prepared:
        model = model_of(payload, models)
        for number, message in enumerate(messages_of(payload)):
            if message["role"] not in ("user", "assistant"):
                raise InvalidJob(
                    f"payload.messages[{number}].role: 'user' or 'assistant' is needed,"
                    f" got {message['role']!r:.40}; a system prompt goes into payload.system"
                )
        output = count_of(payload, "max_tokens") or default_max_output_tokens
        size = input_size(dict(payload), anthropic_media)
        charge = charge_of(
            payload,
            model,
            ProviderType.ANTHROPIC,
            size=size,
            output_tokens=output,
            unbounded=_unbounded(payload),
        )
        return Prepared(model, charge, flag_of(payload, "stream"))

    def request(
        self,
        payload: Mapping[str, Any],
        endpoint: Endpoint,
        *,
        job_id: str,
        call: int | str,
        max_output_tokens: int,
    ) -> HttpRequest:
        body = dict(payload)
        if body.get("max_tokens") is None:
            body["max_tokens"] = max_output_tokens
        headers = {**call_headers(job_id, call), "anthropic-version": API_VERSION}
        if endpoint.api_key:
            headers["x-api-key"] = endpoint.api_key
        url = endpoint.base_url.rstrip("/") + "/v1/messages"
        return HttpRequest("POST", url, headers, encoded(body))

    def parse(
        self,
        status: int,
        headers: Mapping[str, str],
        body: bytes,
        *,
        elapsed_seconds: float,
        now: float,
    ) -> Outcome:
        document = answer_of(status, headers, body, elapsed_seconds=elapsed_seconds, now=now)
        if isinstance(document, Outcome):
            return document
        content = document.get("content")
        if document.get("type") != "message" or not isinstance(content, list):
            return malformed("no message", body, headers)
        usage = mapping(document.get("usage"))
        return Outcome(
            OutcomeClass.SUCCESS,
            status=status,
            usage=usage_of(usage) or Usage(0, output_tokens(content), estimated=True),
            result=body,
            model=text(document.get("model")),
            request_id=request_id(headers),
            service_tier=text(usage.get("service_tier")),
        )

    def limit_hints(self, headers: Mapping[str, str], *, now: float) -> tuple[LimitHint, ...]:
        return anthropic_hints(headers, now=now)

    def assembler(self) -> StreamAssembler:
        return AnthropicStream()
