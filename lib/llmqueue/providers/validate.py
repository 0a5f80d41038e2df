"""What every payload must have, with sentences that name the field."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from llmqueue.documents import is_list
from llmqueue.errors import InvalidJob


def model_of(payload: Mapping[str, Any], allowed: tuple[str, ...]) -> str:
    """The model's name. Raises InvalidJob where it is missing or not allowed."""
    model = payload.get("model")
    if not isinstance(model, str) or not model:
        raise InvalidJob("payload.model: a model's name is needed")
    if allowed and model not in allowed:
        raise InvalidJob(
            f"payload.model: {model!r} is not allowed in this queue; allowed: {', '.join(allowed)}"
        )
    return model


def messages_of(payload: Mapping[str, Any]) -> list[Any]:
    """The messages. Raises InvalidJob unless they are a list with at least one."""
    messages = payload.get("messages")
    if not is_list(messages) or not messages:
        raise InvalidJob("payload.messages: a list with at least one message is needed")
    for number, message in enumerate(messages):
        if not isinstance(message, dict) or "role" not in message:
            raise InvalidJob(f"payload.messages[{number}]: an object with `role` is needed")
    return messages


def count_of(payload: Mapping[str, Any], name: str) -> int | None:
    """A positive whole number, None where it is absent. Raises InvalidJob."""
    value = payload.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidJob(f"payload.{name}: a whole number ≥ 1 is needed, got {value!r:.60}")
    return value


def flag_of(payload: Mapping[str, Any], name: str) -> bool:
    value = payload.get(name)
    if value is None or isinstance(value, bool):
        return bool(value)
    raise InvalidJob(f"payload.{name}: true or false is needed, got {value!r:.60}")


def encoded(body: Mapping[str, Any]) -> bytes:
    """The request's JSON. Raises InvalidJob for numbers that JSON doesn't have."""
    try:
        return json.dumps(body, allow_nan=False).encode()
    except (ValueError, RecursionError) as exc:
        raise InvalidJob(
            "payload: JSON has no NaN and no infinity, and providers read no deep nesting"
        ) from exc


def call_headers(job_id: str, call: int | str) -> dict[str, str]:
    """Headers of every call: its name, for providers and gateways that know it again."""
    name = f"{job_id}/{call}"
    return {
        "content-type": "application/json",
        "idempotency-key": name,
        "x-client-request-id": name,
    }
