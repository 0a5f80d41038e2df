"""Good work, wrong answers: what a 200 can carry that is no answer, or hardly one."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from llmqueue_cli.simulate.call import JSON, Call
from llmqueue_cli.simulate.fault import Fault
from llmqueue_cli.simulate.misbehave.errors import inner_error, page
from llmqueue_cli.simulate.plan import Work
from llmqueue_cli.simulate.shapes.port import Header

_HTML = ("content-type", "text/html; charset=utf-8")
_ELSEWHERE = "http://redirected.invalid/v1/chat/completions"

Edit = Callable[[dict[str, Any], Fault], bytes]


def _dump(document: dict[str, Any]) -> bytes:
    return json.dumps(document).encode()


def _no_choices(document: dict[str, Any], fault: Fault) -> bytes:
    field = "choices" if "choices" in document else "content"
    return _dump({**document, field: None})


def _no_usage(document: dict[str, Any], fault: Fault) -> bytes:
    return _dump({key: value for key, value in document.items() if key != "usage"})


def _other_usage(document: dict[str, Any], fault: Fault) -> bytes:
    usage = document["usage"]
    given = usage.get("prompt_tokens", usage.get("input_tokens"))
    produced = usage.get("completion_tokens", usage.get("output_tokens"))
    return _dump({**document, "usage": {"input_tokens": given, "output_tokens": produced}})


def _text(document: dict[str, Any], fault: Fault, inserted: bytes) -> bytes:
    """The document with bytes in the midst of its text."""
    return _dump(document).replace(b"word", b"wo" + inserted + b"rd", 1)


_EDITS: dict[str, Edit] = {
    "html_200": lambda document, fault: page(200, "OK"),
    "html_as_json": lambda document, fault: page(200, "OK"),
    "empty_200": lambda document, fault: b"",
    "choices_null": _no_choices,
    "missing_usage": _no_usage,
    "usage_input_output": _other_usage,
    "negative_headers": lambda document, fault: _dump(document),
    "non_utf8": lambda document, fault: _text(document, fault, b"\xff\xfe\x80"),
    "bom": lambda document, fault: b"\xef\xbb\xbf" + _dump(document),
    "lone_surrogate": lambda document, fault: _text(document, fault, rb"\ud83d"),
    "blank_lines": lambda document, fault: b"\n\n\n" + _dump(document),
}


async def edited(call: Call, fault: Fault, work: Work) -> None:
    """Do the work, bill it, and answer 200 with what the fault makes of the answer."""
    if fault.name == "missing_usage" and call.ask.stream:
        await call.stream(work, with_usage=False)
        return
    await call.do(work)
    headers = call.headers(_HTML if fault.name == "html_200" else JSON)
    if fault.name == "negative_headers":
        negative = call.shape.negative_headers(wall=call.wall())
        known = {name for name, _ in negative}
        headers = [each for each in headers if each[0] not in known] + negative
    body = _EDITS[fault.name](call.document(work.usage), fault)
    await call.send(200, headers, body)


async def error_in_200(call: Call, fault: Fault, work: Work) -> None:
    """An error document in a 200: `code=` names the error answer whose words it takes (529)."""
    words = inner_error(fault)
    if fault.flag("billed", False):
        await call.do(work)
    await call.send_json(200, call.shape.error(words, words.message, call.request_id))


async def redirect(call: Call, fault: Fault, work: Work) -> None:
    """307 to `location=`, another host."""
    target: Header = ("location", fault.text("location", _ELSEWHERE))
    await call.send(307, call.headers(target), b"")


BODIES: dict[str, Callable[[Call, Fault, Work], Awaitable[None]]] = {
    **dict.fromkeys(_EDITS, edited),
    "error_in_200": error_in_200,
    "redirect_307": redirect,
}
