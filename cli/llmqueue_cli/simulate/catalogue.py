"""Every way to misbehave, by name; `llmqueue fake-provider --help` names them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ErrorAnswer:
    """An error status: the words of each shape, and whether the work was done all the same.

    `openai` is (type, code), `anthropic` the type. `html` answers with a proxy's page instead.
    """

    status: int
    message: str
    openai: tuple[str, str | None] = ("server_error", None)
    anthropic: str = "api_error"
    worked: bool = False
    html: bool = False
    delay_seconds: float = 0.0
    retry_after: str = "none"
    anthropic_details: str | None = None


_INVALID = ("invalid_request_error", None)

ERROR_ANSWERS: Mapping[str, ErrorAnswer] = {
    "rate429": ErrorAnswer(
        429,
        "Rate limit reached for requests",
        ("requests", "rate_limit_exceeded"),
        "rate_limit_error",
        retry_after="1",
    ),
    "huge_retry_after": ErrorAnswer(
        429,
        "Rate limit reached for requests",
        ("requests", "rate_limit_exceeded"),
        "rate_limit_error",
        retry_after="86400",
    ),
    "slow_down": ErrorAnswer(
        429,
        "Slow down: the request rate grew too quickly",
        ("requests", "slow_down"),
        "rate_limit_error",
        anthropic_details="ramp_limit_exceeded",
    ),
    "insufficient_quota": ErrorAnswer(
        429,
        "You exceeded your current quota, please check your plan and billing details.",
        ("insufficient_quota", "insufficient_quota"),
        "rate_limit_error",
        anthropic_details="credit_balance_exhausted",
    ),
    "spend_limit": ErrorAnswer(
        429,
        "You have reached your enforced spend limit. You will regain access on {regain}.",
        ("insufficient_quota", "enforced_spend_limit_reached"),
        "rate_limit_error",
        anthropic_details="enforced_spend_limit_reached",
    ),
    "usage_limit_400": ErrorAnswer(
        400,
        "You have reached your specified API usage limits. You will regain access on {regain}.",
        _INVALID,
        "invalid_request_error",
    ),
    "credit_too_low": ErrorAnswer(
        400,
        "Your credit balance is too low to access the API.",
        _INVALID,
        "invalid_request_error",
    ),
    "400": ErrorAnswer(400, "The request is invalid.", _INVALID, "invalid_request_error"),
    "context_too_long": ErrorAnswer(
        400,
        "This model's maximum context length is 128000 tokens: the prompt is too long.",
        ("invalid_request_error", "context_length_exceeded"),
        "invalid_request_error",
    ),
    "401": ErrorAnswer(
        401,
        "Incorrect API key provided.",
        ("invalid_request_error", "invalid_api_key"),
        "authentication_error",
    ),
    "402": ErrorAnswer(
        402, "Payment is required.", ("billing_error", "billing_not_active"), "billing_error"
    ),
    "403": ErrorAnswer(
        403,
        "The key may not use this model.",
        ("invalid_request_error", "permission_denied"),
        "permission_error",
    ),
    "404": ErrorAnswer(
        404,
        "The model does not exist.",
        ("invalid_request_error", "model_not_found"),
        "not_found_error",
    ),
    "408": ErrorAnswer(408, "The request timed out.", ("timeout", None), "timeout_error"),
    "413": ErrorAnswer(413, "The request is too large.", _INVALID, "request_too_large"),
    "422": ErrorAnswer(422, "The request cannot be processed.", _INVALID, "invalid_request_error"),
    "500": ErrorAnswer(500, "The server had an error while processing your request."),
    "502": ErrorAnswer(502, "Bad gateway."),
    "502_late": ErrorAnswer(502, "Bad gateway.", worked=True, delay_seconds=31.0),
    "html_502": ErrorAnswer(502, "Bad Gateway", html=True),
    "503": ErrorAnswer(
        503,
        "The engine is currently overloaded, please try again later.",
        ("server_error", "engine_overloaded"),
        "overloaded_error",
    ),
    "504": ErrorAnswer(504, "Gateway timeout.", anthropic="timeout_error", worked=True),
    "520": ErrorAnswer(520, "Web server returned an unknown error", worked=True, html=True),
    "521": ErrorAnswer(521, "Web server is down", html=True),
    "522": ErrorAnswer(522, "Connection timed out", html=True),
    "523": ErrorAnswer(523, "Origin is unreachable", html=True),
    "524": ErrorAnswer(524, "A timeout occurred", worked=True, html=True),
    "529": ErrorAnswer(529, "Overloaded", ("server_error", "overloaded"), "overloaded_error"),
}

BODY_FAULTS: Mapping[str, str] = {
    "html_200": "a 200 with a web page",
    "html_as_json": "a web page typed as application/json",
    "empty_200": "a 200 without a body",
    "choices_null": "no choices (openai) or no content (anthropic)",
    "error_in_200": "an error document in a 200 (code=…)",
    "missing_usage": "a 200, or a stream, without usage",
    "usage_input_output": "usage as input_tokens and output_tokens",
    "negative_headers": "limit -1, remaining -1, reset 0",
    "non_utf8": "a byte that is not UTF-8 in the text",
    "bom": "a byte order mark before the JSON",
    "lone_surrogate": "half a surrogate pair, escaped",
    "blank_lines": "blank lines before the JSON",
    "redirect_307": "to another host (location=URL)",
}

WIRE_FAULTS: Mapping[str, str] = {
    "connect_refused": "the listener is closed from from_s to to_s; by script only",
    "reset_before_reading": "reset as soon as a request is seen, its body unread",
    "reset_after_reading": "reset after the request was read; no work is done",
    "reset_after_billing": "reset after the work was done and billed",
    "never_answer": "bills, and says nothing until the client leaves",
    "cut_body": "half of the body, then the connection ends",
    "long_content_length": "a Content-Length that is too large, then the end",
    "stalled_body": "half of the body, then nothing until the client leaves",
    "gzip_bomb": "kilobytes that unpack to size= bytes (256 MiB)",
    "huge_body": "size= bytes (100 MB)",
    "huge_header": "a header line of size= bytes (1 MiB)",
    "close_idle": "a good answer, then the kept-alive connection is closed unannounced (after=…)",
}

STREAM_FAULTS: Mapping[str, str] = {
    "cut_stream": "cut after deltas= deltas (2)",
    "stream_error": "an overloaded error event after deltas= deltas (2), then the end",
    "stalled_stream": "nothing after deltas= deltas (2) until the client leaves",
}
"""A request that does not stream gets cut_body, error_in_200 and stalled_body in their place."""

WITHOUT_STREAM: Mapping[str, str] = {
    "cut_stream": "cut_body",
    "stream_error": "error_in_200",
    "stalled_stream": "stalled_body",
}

FAULTS = frozenset({*ERROR_ANSWERS, *BODY_FAULTS, *WIRE_FAULTS, *STREAM_FAULTS})
