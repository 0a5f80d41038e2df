"""Payload mode against a provider on a real socket."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from llmqueue.credentials import Credential
from llmqueue.errors import InvalidJob
from llmqueue.outcome import Outcome
from llmqueue.providers.http import NotSent
from llmqueue.states import OutcomeClass, ProviderType
from llmqueue_worker.attempt import Attempt
from llmqueue_worker.booking import Bookkeeper, pricing_of
from llmqueue_worker.call import ProviderRunner
from support.memorystore import grant
from support.rawprovider import RawProvider, Received
from support.scriptedrunner import settings

PAYLOAD = b'{"model":"gpt-4o-mini","messages":[{"role":"user","content":"hi"}]}'


@pytest.fixture
async def provider() -> AsyncIterator[RawProvider]:
    async with RawProvider() as provider:
        yield provider


async def call(
    provider: RawProvider, *, refuse: bool = False, job: dict[str, Any] | None = None, **values: Any
) -> tuple[Outcome, Attempt]:
    async def ask(_attempt: Attempt) -> None:
        if refuse:
            raise NotSent

    runner = ProviderRunner(
        settings(provider=ProviderType.OPENAI_COMPATIBLE, base_url=provider.url, **values)
    )
    attempt = Attempt(
        grant(**({"payload": PAYLOAD} | (job or {}))),
        Credential("sk-test", "f1"),
        ask=ask,
        started_at=0.0,
        ends_at=1.0,
    )
    try:
        return await runner.run(attempt), attempt
    finally:
        await runner.close()


async def test_the_payload_is_the_request(provider: RawProvider) -> None:
    outcome, attempt = await call(provider, job={"max_output_tokens": 77})
    assert outcome.kind is OutcomeClass.SUCCESS
    assert attempt.sent
    (request,) = provider.received
    assert request.body["messages"] == [{"role": "user", "content": "hi"}]
    assert request.body["max_tokens"] == 77
    assert request.headers["authorization"] == "Bearer sk-test"
    assert request.headers["idempotency-key"] == "job-1/1"
    settled = Bookkeeper(pricing_of(ProviderType.OPENAI)).settlement(attempt, outcome, seconds=1)
    assert settled.cost_nano_usd == 10 * 150 + 5 * 600


def test_prices_can_be_read_ahead() -> None:
    """The first answer of a process must not wait for the price data."""
    code = (
        "import sys\n"
        "from llmqueue.states import ProviderType\n"
        "from llmqueue_worker.booking import load_prices\n"
        "load_prices(ProviderType.OPENAI)\n"
        "sys.exit('genai_prices.data' not in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


async def test_a_refusal_goes_through_and_nothing_leaves(provider: RawProvider) -> None:
    with pytest.raises(NotSent):
        await call(provider, refuse=True)
    assert provider.received == []


@pytest.mark.parametrize(
    "payload", [b"no json", b"\xff\xfe", b"[1]", b"null", b"[" * 100_000], ids=lambda p: repr(p[:8])
)
async def test_a_payload_that_is_no_object_never_leaves(
    provider: RawProvider, payload: bytes
) -> None:
    outcome, attempt = await call(provider, job={"payload": payload})
    assert (outcome.kind, outcome.sent, attempt.sent) == (OutcomeClass.PERMANENT, False, False)
    assert "payload" in outcome.message
    assert provider.received == []


async def test_a_payload_that_the_provider_s_code_refuses(
    provider: RawProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_args: object, **_kwargs: object) -> None:
        raise InvalidJob("model: is missing")

    monkeypatch.setattr("llmqueue.providers.openai.OpenAIProvider.request", refuse)
    outcome, _ = await call(provider)
    assert (outcome.kind, outcome.sent) == (OutcomeClass.PERMANENT, False)
    assert outcome.message == "model: is missing"


@pytest.mark.parametrize(
    ("idempotency", "kind"),
    [("None", OutcomeClass.UNKNOWN), ("Honoured", OutcomeClass.TRANSIENT)],
)
@pytest.mark.parametrize(
    ("job_seconds", "queue_seconds", "attempt_seconds"),
    [
        pytest.param(0.2, 30, 30, id="the job's time-out"),
        pytest.param(None, 0.2, 30, id="the queue's time-out"),
        pytest.param(30.0, 30, 0.2, id="a job's time-out is never above an attempt's"),
    ],
)
async def test_no_answer_in_time(
    provider: RawProvider,
    idempotency: str,
    kind: OutcomeClass,
    job_seconds: float | None,
    queue_seconds: float,
    attempt_seconds: float,
) -> None:
    """Sent and not answered: unknown; a provider that honours the key is simply asked again."""
    provider.gate.clear()
    async with asyncio.timeout(10):
        outcome, _ = await call(
            provider,
            job={"timeout_seconds": job_seconds},
            request_seconds=queue_seconds,
            attempt_seconds=attempt_seconds,
            idempotency=idempotency,
        )
    assert (outcome.kind, outcome.sent) == (kind, True)


async def test_a_job_may_ask_for_more_than_its_queue_s_time(provider: RawProvider) -> None:
    provider.gate.clear()
    asyncio.get_running_loop().call_later(0.4, provider.gate.set)
    outcome, _ = await call(provider, job={"timeout_seconds": 10.0}, request_seconds=0.2)
    assert outcome.kind is OutcomeClass.SUCCESS


async def test_only_true_streams(provider: RawProvider) -> None:
    async def stream(request: Received, writer: asyncio.StreamWriter) -> None:
        assert request.body["stream_options"] == {"include_usage": True}
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
            b'data: {"choices":[{"index":0,"delta":{"content":"yes"}}]}\n\n'
            b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
            b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":7}}\n\n'
            b"data: [DONE]\n\n"
        )
        await writer.drain()

    provider.reply = stream
    outcome, _ = await call(provider, job={"payload": PAYLOAD[:-1] + b',"stream":true}'})
    assert outcome.usage is not None
    assert outcome.usage.output_tokens == 7
