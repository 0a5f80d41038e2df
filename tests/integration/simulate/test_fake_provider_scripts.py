"""Faults by script, and what ends a simulation."""

from __future__ import annotations

import asyncio

import httpx2
import pytest

from llmqueue_cli.simulate.distribution import Constant
from llmqueue_cli.simulate.fault import Fault
from llmqueue_cli.simulate.limits import Limits
from llmqueue_cli.simulate.options import ProviderOptions
from llmqueue_cli.simulate.provider import FakeProvider
from llmqueue_cli.simulate.schedule import Rule, parse_script
from support.fakecalls import faulty, raw, until


async def test_the_listener_closes_and_opens_by_script(
    http: httpx2.AsyncClient, fake: FakeProvider
) -> None:
    """P24: connections are refused for a while; idle ones are dropped."""
    assert (await faulty(http, fake, "")).status_code == 200
    fake.set_faults((Rule(Fault("connect_refused"), 0.0, 0.6),))
    await asyncio.sleep(0.1)
    with pytest.raises(httpx2.ConnectError):
        await faulty(http, fake, "")
    with pytest.raises(httpx2.ConnectError):
        async with httpx2.AsyncClient(trust_env=False) as fresh:
            await faulty(fresh, fake, "")
    await asyncio.sleep(0.8)
    assert (await faulty(http, fake, "")).status_code == 200
    assert fake.stats()["calls"] == 2


async def test_a_new_script_opens_a_closed_listener(
    http: httpx2.AsyncClient, fake: FakeProvider
) -> None:
    fake.set_faults((Rule(Fault("connect_refused"), 0.0, 60.0),))
    await asyncio.sleep(0.1)
    fake.set_faults(())
    await asyncio.sleep(0.1)
    assert (await faulty(http, fake, "")).status_code == 200


async def test_a_script_for_some_time(http: httpx2.AsyncClient) -> None:
    script = parse_script('[{"to_s": 0.5, "fault": "529"}, {"to_s": 0.5, "fault": "rate429"}]')
    async with FakeProvider(ProviderOptions(script=script)) as fake:
        assert (await faulty(http, fake, "")).status_code == 529
        assert (await faulty(http, fake, "503")).status_code == 503
        await asyncio.sleep(0.6)
        assert (await faulty(http, fake, "")).status_code == 200
        answer = await http.post(fake.url + "/_sim/faults", json=[{"fault": "rate429"}])
        assert answer.json() == {"rules": 1}
        assert (await faulty(http, fake, "")).status_code == 429
        refused = await http.post(fake.url + "/_sim/faults", json=[{"fault": "no"}])
        assert refused.status_code == 400
        assert "rule 1: unknown fault 'no'" in refused.json()["error"]
        await http.post(fake.url + "/_sim/faults", json=[])
        assert (await faulty(http, fake, "")).status_code == 200
        stats = fake.stats()
    assert (stats["injected_429"], stats["injected_529"], stats["answered_429"]) == (1, 1, 0)


async def test_a_failed_call_gives_its_tokens_back_where_usage_counts(
    http: httpx2.AsyncClient,
) -> None:
    options = ProviderOptions(shape="anthropic", limits=Limits(9, None, 1000))
    async with FakeProvider(options) as fake:
        await faulty(http, fake, "500")
        headers = (await faulty(http, fake, "500 message=again")).headers
    # What the second one asks for is counted while it runs; the first one's is not.
    assert headers["anthropic-ratelimit-input-tokens-remaining"] == str(1000 - 9)
    assert headers["anthropic-ratelimit-requests-remaining"] == "7"


async def test_calls_that_fail_count_against_the_limits(http: httpx2.AsyncClient) -> None:
    async with FakeProvider(ProviderOptions(limits=Limits(requests=2))) as fake:
        statuses = [(await faulty(http, fake, "500")).status_code for _ in range(3)]
    assert statuses == [500, 500, 429]


@pytest.mark.parametrize(
    "fault",
    [
        "connect_refused",
        "502 after=soon",
        "stream_error code=nothing",
        "huge_header size=-1",
        "504 billed=perhaps",
    ],
)
async def test_a_fault_that_cannot_be_is_told_so(
    http: httpx2.AsyncClient, fake: FakeProvider, fault: str
) -> None:
    answer = await faulty(http, fake, fault, stream=True)
    assert answer.status_code == 400
    assert fake.stats()["billed"]["calls"] == 0


async def test_it_ends_at_once_with_calls_on_their_way() -> None:
    async with asyncio.timeout(5):
        async with FakeProvider(ProviderOptions(latency=Constant(60.0))) as fake:
            asking = [asyncio.create_task(raw(fake, "")) for _ in range(5)]
            await until(lambda: fake.stats()["in_flight"] == 5)
        await asyncio.gather(*asking, return_exceptions=True)
    assert fake.stats()["in_flight"] == 0
    assert fake.billed() == {}
