"""Error answers of every status, with every form of Retry-After."""

from __future__ import annotations

import asyncio
import math
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

from llmqueue_cli.simulate.call import Call
from llmqueue_cli.simulate.catalogue import ERROR_ANSWERS, ErrorAnswer
from llmqueue_cli.simulate.fault import BadFault, Fault
from llmqueue_cli.simulate.plan import Work
from llmqueue_cli.simulate.shapes.port import Header

_HTML = ("content-type", "text/html")
_FROM_NOW = re.compile(r"date([+-]\d+(?:\.\d+)?)")


def retry_after_headers(fault: Fault, default: str, *, wall: float) -> list[Header]:
    """`retry_after=` none, empty, date+20 (an HTTP date 20 s from now), or any text as it is;
    `retry_after_ms=` and `x_ms_retry_after_ms=` likewise."""
    found: list[Header] = [
        (name, fault.params[key])
        for key, name in (
            ("retry_after_ms", "retry-after-ms"),
            ("x_ms_retry_after_ms", "x-ms-retry-after-ms"),
        )
        if key in fault.params
    ]
    text = fault.text("retry_after", "none" if found else default)
    if text == "none":
        return found
    offset = _FROM_NOW.fullmatch(text)
    if offset:
        at = datetime.fromtimestamp(math.ceil(wall + float(offset[1])), UTC)
        text = format_datetime(at, usegmt=True)
    return [*found, ("retry-after", "" if text == "empty" else text)]


def regain_date(fault: Fault, *, wall: float) -> str:
    """`regain=2026-12-01`, else the first day of next month, as a provider's message says it."""
    first = datetime.fromtimestamp(wall, UTC).replace(day=1) + timedelta(days=32)
    return f"{fault.text('regain', first.strftime('%Y-%m-01'))} at 00:00 UTC"


def inner_error(fault: Fault) -> ErrorAnswer:
    """The words of an error that comes inside a 200: `code=` names them (529). Raises BadFault."""
    name = fault.text("code", "529")
    if name not in ERROR_ANSWERS:
        raise BadFault(f"code={name!r} names no error answer: {', '.join(ERROR_ANSWERS)}")
    return ERROR_ANSWERS[name]


def page(status: int, title: str) -> bytes:
    """What a proxy shows in place of the provider's answer."""
    return (
        f"<!DOCTYPE html>\n<html><head><title>{status} {title}</title></head>\n"
        f"<body><center><h1>{status} {title}</h1></center></body></html>\n"
    ).encode()


async def error_answer(call: Call, fault: Fault, work: Work) -> None:
    """Answer with a fault's status: at once, `after=` seconds later, or after the work.

    `billed=` decides whether the work is done and billed, `message=` what the answer says.
    """
    words = ERROR_ANSWERS[fault.name]
    worked = fault.flag("billed", words.worked)
    delay = fault.number("after", words.delay_seconds)
    await asyncio.sleep(delay)
    if worked:
        await call.do(replace(work, seconds=max(0.0, work.seconds - delay)))
    await send_error(call, fault, words)


async def send_error(call: Call, fault: Fault, words: ErrorAnswer) -> None:
    """Send an error answer now."""
    wait = retry_after_headers(fault, words.retry_after, wall=call.wall())
    if words.html:
        await call.send(words.status, call.headers(_HTML, *wait), page(words.status, words.message))
        return
    message = fault.text("message", words.message)
    message = message.replace("{regain}", regain_date(fault, wall=call.wall()))
    document = call.shape.error(words, message, call.request_id)
    await call.send_json(words.status, document, *wait)
