"""OpenAI's chat completions, and servers that speak the same protocol.

Source: OpenAI's API reference and the openai SDK; facts in the design's providers page.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llmqueue.outcome import LimitHint, Outcome, Usage
from llmqueue.profiles import PROFILES
from llmqueue.providers.answer import answer_of, malformed
from llmqueue.providers.charging import charge_of
from llmqueue.providers.estimate import input_size, output_tokens
from llmqueue.providers.fields import count, items, mapping, text
from llmqueue.providers.headers import openai_hints, request_id
from llmqueue.providers.media import openai_media
from llmqueue.providers.openai_stream import OpenAIStream
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

_LIST_PRICE_TIERS = (None, "auto", "default", "flex")


def usage_of(document: Mapping[str, Any]) -> Usage | None:
    """Tokens in either of OpenAI's shapes, DeepSeek's cache fields too; None where missing."""
    usage = mapping(document.get("usage"))
    given, produced = count(usage, "prompt_tokens"), count(usage, "completion_tokens")
    details = "prompt_tokens_details", "completion_tokens_details"
    if given is None and produced is None:
        given, produced = count(usage, "input_tokens"), count(usage, "output_tokens")
        details = "input_tokens_details", "output_tokens_details"
    if given is None or produced is None:
        return None
    cached = count(usage, details[0], "cached_tokens")
    if cached is None:
        cached = count(usage, "prompt_cache_hit_tokens")
    return Usage(
        given,
        produced,
        cached_tokens=min(cached or 0, given),
        reasoning_tokens=count(usage, details[1], "reasoning_tokens") or 0,
    )


def _unbounded(payload: Mapping[str, Any]) -> bool:
    """Whether it may cost what text tokens don't say: audio, web searches, dearer tiers."""
    return (
        payload.get("service_tier") not in _LIST_PRICE_TIERS
        or "audio" in items(payload.get("modalities"))
        or payload.get("web_search_options") is not None
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
        messages_of(payload)
        choices = count_of(payload, "n") or 1
        newer, older = count_of(payload, "max_completion_tokens"), count_of(payload, "max_tokens")
        output = (max(newer or 0, older or 0) or default_max_output_tokens) * choices
        size = input_size(dict(payload), openai_media)
        charge = charge_of(
            payload,
            model,
            self.kind,
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
        if body.get("max_completion_tokens") is None and body.get("max_tokens") is None:
            # Older compatible servers know only the older name.
            newer = self.kind is ProviderType.OPENAI
            bound = max_output_tokens // (count_of(payload, "n") or 1)
            body["max_completion_tokens" if newer else "max_tokens"] = bound
        if body.get("stream"):
            body["stream_options"] = {**mapping(body.get("stream_options")), "include_usage": True}
        headers = call_headers(job_id, call)
        if endpoint.api_key:
            headers["authorization"] = f"Bearer {endpoint.api_key}"
        url = endpoint.base_url.rstrip("/") + "/chat/completions"
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
        choices = items(document.get("choices"))
        if not choices or not all(mapping(mapping(choice).get("message")) for choice in choices):
            return malformed("no choices", body, headers)
        messages = [mapping(choice)["message"] for choice in choices]
        return Outcome(
            OutcomeClass.SUCCESS,
            status=status,
            usage=usage_of(document) or Usage(0, output_tokens(messages), estimated=True),
            result=body,
            model=text(document.get("model")),
            request_id=request_id(headers),
            service_tier=text(document.get("service_tier")),
        )

    def limit_hints(self, headers: Mapping[str, str], *, now: float) -> tuple[LimitHint, ...]:
        return openai_hints(headers, now=now)

    def assembler(self) -> StreamAssembler:
        return OpenAIStream()
