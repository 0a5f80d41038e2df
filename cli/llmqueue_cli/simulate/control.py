"""What tests and people ask the simulation itself: `/_sim/…`.

GET  /_sim/stats            all counts
GET  /_sim/calls?since=N    the log of calls from number N on
GET  /_sim/billed           job → how often it was billed
POST /_sim/reset            forget all counts; the limits' windows stay
POST /_sim/faults           a list of rules replaces the script, its times from now; [] ends it
POST /_sim/limits           {"rpm": 60, "tpm": null}: what is named changes, null = unlimited
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import parse_qs, urlsplit

from llmqueue_cli.simulate.fault import BadFault
from llmqueue_cli.simulate.limits import Limits
from llmqueue_cli.simulate.schedule import parse_script

if TYPE_CHECKING:
    from llmqueue_cli.simulate.provider import FakeProvider

PREFIX = "/_sim/"
_FIELDS = {
    "rpm": "requests",
    "tpm": "tokens",
    "itpm": "input_tokens",
    "otpm": "output_tokens",
}


def control(provider: FakeProvider, method: str, target: str, body: bytes) -> tuple[int, Any]:
    """(status, document) for one control request."""
    parts = urlsplit(target)
    try:
        return _route(provider, method, parts.path.removeprefix(PREFIX), parts.query, body)
    except (BadFault, ValueError) as exc:
        return 400, {"error": str(exc)}


def _route(
    provider: FakeProvider, method: str, what: str, query: str, body: bytes
) -> tuple[int, Any]:
    match method, what:
        case "GET", "stats":
            return 200, provider.stats()
        case "GET", "calls":
            return 200, provider.calls(since=int(parse_qs(query).get("since", ["0"])[0]))
        case "GET", "billed":
            return 200, dict(provider.billed())
        case "POST", "reset":
            provider.reset()
            return 200, {}
        case "POST", "faults":
            rules = parse_script(body)
            provider.set_faults(rules)
            return 200, {"rules": len(rules)}
        case "POST", "limits":
            provider.set_limits(changed_limits(provider.limits, body))
            return 200, provider.stats()["limits"]
        case _:
            return 404, {"error": f"no {method} {PREFIX}{what}"}


def changed_limits(limits: Limits, body: bytes) -> Limits:
    """`limits` with the fields that a JSON object names. Raises ValueError."""
    document: Any = json.loads(body)
    if not isinstance(document, dict):
        raise ValueError("a JSON object with rpm, tpm, itpm or otpm is wanted")
    changes: dict[str, int | None] = {}
    for name, value in cast("dict[str, Any]", document).items():
        if name not in _FIELDS:
            raise ValueError(f"unknown limit {name!r}; known: {', '.join(_FIELDS)}")
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise ValueError(f"{name}: a whole number or null is wanted")
        changes[_FIELDS[name]] = value
    return replace(limits, **changes)
