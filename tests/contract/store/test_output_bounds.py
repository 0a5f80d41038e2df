"""A payload without a bound is called with the bound that was counted at its enqueue."""

from __future__ import annotations

import json
from typing import Any

import pytest

from llmqueue.client import JobSpec, new_job
from llmqueue.outcome import Usage
from llmqueue.providers.port import Endpoint
from llmqueue.providers.registry import get_provider
from llmqueue.states import ProviderType
from llmqueue.store.port import Grant
from support.storebench import StoreBench

HELLO = [{"role": "user", "content": "hi"}]


async def granted(bench: StoreBench, **payload: Any) -> Grant:
    """Enqueued as a producer does, and claimed."""
    entry = (await bench.store.registry())[bench.queue]
    spec = JobSpec(payload={"model": "m", "messages": HELLO, **payload})
    await bench.store.enqueue([new_job(entry, spec)])
    return await bench.take()


def sent(grant: Grant, kind: ProviderType, **payload: Any) -> dict[str, Any]:
    """The body of the call that a worker makes of it."""
    request = get_provider(kind).request(
        {"model": "m", "messages": HELLO, **payload},
        Endpoint("http://x", None),
        job_id=grant.id,
        call=1,
        max_output_tokens=grant.max_output_tokens,
    )
    body: dict[str, Any] = json.loads(request.body)
    return body


@pytest.mark.parametrize(
    ("kind", "payload", "counted", "field", "bound"),
    [
        pytest.param("openai", {}, 700, "max_completion_tokens", 700, id="openai"),
        pytest.param("openai", {"n": 3}, 2100, "max_completion_tokens", 700, id="openai, n"),
        pytest.param("openai", {"n": 1}, 700, "max_completion_tokens", 700, id="openai, n = 1"),
        pytest.param("openai-compatible", {"n": 2}, 1400, "max_tokens", 700, id="own server, n"),
        pytest.param("anthropic", {}, 700, "max_tokens", 700, id="anthropic"),
        pytest.param("openai", {"max_tokens": 9}, 9, "max_tokens", 9, id="declared"),
        pytest.param("openai", {"max_tokens": 9, "n": 4}, 36, "max_tokens", 9, id="declared, n"),
    ],
)
async def test_what_is_called_is_what_was_counted(
    bench: StoreBench, kind: str, payload: dict[str, Any], counted: int, field: str, bound: int
) -> None:
    provider = ProviderType(kind)
    await bench.configure(queue={"provider": provider, "default_max_output_tokens": 700})
    grant = await granted(bench, **payload)
    assert grant.max_output_tokens == counted
    body = sent(grant, provider, **payload)
    assert body[field] == bound
    assert len([name for name in body if name.startswith("max_")]) == 1


async def test_a_default_that_changed_meanwhile(bench: StoreBench) -> None:
    """The reservation was made with the old one: a call with a larger one would be over it."""
    await bench.configure(queue={"default_max_output_tokens": 100})
    entry = (await bench.store.registry())[bench.queue]
    spec = JobSpec(payload={"model": "m", "messages": HELLO})
    await bench.store.enqueue([new_job(entry, spec)])
    await bench.configure(queue={"default_max_output_tokens": 9000})
    grant = await bench.take()
    assert grant.max_output_tokens == 100
    assert sent(grant, ProviderType.OPENAI)["max_completion_tokens"] == 100


async def test_a_learned_reservation_does_not_lower_the_bound(bench: StoreBench) -> None:
    """Less is reserved than may be produced; the answer must not be cut off for that."""
    await bench.configure(budget={"learned_output": True, "token_accounting": "correct"})
    for _ in range(60):
        await bench.enqueue(tokens=(10, 4000))
        await bench.run_one(usage=Usage(10, 20))
    await bench.enqueue(tokens=(10, 4000))
    grant = await bench.take()
    assert grant.output_tokens < 4000
    assert grant.max_output_tokens == 4000


async def test_the_bound_stays_over_a_retry(bench: StoreBench) -> None:
    await bench.enqueue(tokens=(10, 321))
    grant = await bench.take()
    await bench.store.release(bench.queue, [(grant.id, grant.fence)])
    assert (await bench.take()).max_output_tokens == 321
