"""Connections: what was sent, what was not, and that the client stays usable after all of it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from llmqueue.errors import StoreUnavailable
from llmqueue.outcome import Outcome
from llmqueue.providers.http import NotSent, ProviderClient
from llmqueue.states import OutcomeClass, Severity
from support.rawcalls import ANSWER, KEY, answering, call, new_client, once
from support.rawserver import Peer, RawServer, raw_server
from support.selfsigned import server_context, write_certificate
from support.valkey import free_port


@pytest.fixture
async def client() -> AsyncIterator[ProviderClient]:
    client = new_client()
    yield client
    await client.close()


def success(outcome: Outcome) -> bool:
    return outcome.kind is OutcomeClass.SUCCESS


# ---------------------------------------------------------------- before the first byte


@pytest.mark.parametrize("warm", [False, True], ids=["new-connection", "kept-connection"])
async def test_refusing_before_the_first_byte(client: ProviderClient, warm: bool) -> None:
    """`before_send` raises: nothing is sent, the client stays usable beyond its pool's size."""
    bytes_seen: list[bytes] = []

    async def script(peer: Peer) -> None:
        while head := await peer.request():
            bytes_seen.append(head)
            await peer.answer(ANSWER)

    async def refuse() -> None:
        raise NotSent

    async with raw_server(script) as server:
        if warm:
            await call(client, server.url)
        for _ in range(6):
            with pytest.raises(NotSent):
                await call(client, server.url, before_send=refuse)
        assert success(await call(client, server.url))
    assert len(bytes_seen) == 1 + warm


@pytest.mark.parametrize(
    "error",
    [StoreUnavailable("away"), TimeoutError("away"), OSError("away"), RuntimeError("bug")],
    ids=lambda error: type(error).__name__,
)
async def test_what_before_send_raises_is_not_the_providers_doing(
    client: ProviderClient, error: Exception
) -> None:
    async def fail() -> None:
        raise error

    async with raw_server(answering(ANSWER)) as server:
        with pytest.raises(type(error)) as caught:
            await call(client, server.url, before_send=fail)
        assert caught.value is error
        assert success(await call(client, server.url))


async def test_asking_takes_none_of_the_providers_time(client: ProviderClient) -> None:
    """A slow store must not turn a good answer into an unknown outcome."""

    async def slow() -> None:
        await asyncio.sleep(0.4)

    async with raw_server(answering(ANSWER)) as server:
        assert success(await call(client, server.url, timeout_seconds=0.3, before_send=slow))


# ---------------------------------------------------------------- nothing was sent


async def test_connect_refused_is_not_sent(client: ProviderClient) -> None:
    """P24: retried at no cost."""
    outcome = await call(client, f"http://127.0.0.1:{free_port()}")
    assert (outcome.kind, outcome.sent) == (OutcomeClass.TRANSIENT, False)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        pytest.param(socket.EAI_NONAME, OutcomeClass.AUTH, id="no-such-host"),
        pytest.param(socket.EAI_NODATA, OutcomeClass.AUTH, id="host-without-address"),
        pytest.param(socket.EAI_AGAIN, OutcomeClass.TRANSIENT, id="resolver-away"),
    ],
)
async def test_names_that_do_not_resolve(
    client: ProviderClient, monkeypatch: pytest.MonkeyPatch, error: int, kind: OutcomeClass
) -> None:
    """A name that does not exist needs a person; a resolver that is away needs time."""

    async def fail(*_args: Any, **_kwargs: Any) -> Any:
        raise socket.gaierror(error, "no")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", fail)
    outcome = await call(client, "http://provider.test/")
    assert (outcome.kind, outcome.sent) == (kind, False)
    assert (outcome.severity is Severity.CRITICAL) == (kind is OutcomeClass.AUTH)


@pytest.mark.parametrize("trusted", [False, True], ids=["nobody-vouches", "trusted"])
async def test_certificates_are_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trusted: bool
) -> None:
    """The key does not go to a server that nobody vouches for; SSL_CERT_FILE names others."""
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(write_certificate(tmp_path)))
    client = new_client()
    async with raw_server(answering(ANSWER), tls=server_context(tmp_path)) as server:
        for _ in range(3):  # the later ones on a kept connection
            outcome = await call(
                client, server.url.replace("http://127.0.0.1", "https://localhost")
            )
            expected = OutcomeClass.SUCCESS if trusted else OutcomeClass.AUTH
            assert (outcome.kind, outcome.sent) == (expected, trusted)
        assert server.connections == int(trusted)  # with TLS complete
    await client.close()


async def test_tls_that_is_reset_while_connecting(client: ProviderClient) -> None:
    """TRANSIENT: nothing was sent."""

    async def script(peer: Peer) -> None:
        await peer.reader.read(1)
        peer.reset()

    async with raw_server(script) as server:
        outcome = await call(client, server.url.replace("http:", "https:"))
    assert (outcome.kind, outcome.sent) == (OutcomeClass.TRANSIENT, False)


@pytest.mark.parametrize("url", ["api.example.com/v1", "ftp://x/", "http://", "http://x:port/"])
async def test_wrong_addresses_need_a_person(client: ProviderClient, url: str) -> None:
    """Every job would meet the same: they stay, the credential is paused."""
    outcome = await call(client, url)
    assert (outcome.kind, outcome.sent) == (OutcomeClass.AUTH, False)


@pytest.mark.parametrize("key", ["line\nbreak-secret", "ünicode-secret"])
async def test_keys_that_are_no_header(client: ProviderClient, key: str) -> None:
    async with raw_server(answering(ANSWER)) as server:
        outcome = await call(client, server.url, headers={"x-api-key": key})
    assert (outcome.kind, outcome.sent) == (OutcomeClass.AUTH, False)
    assert "secret" not in outcome.message


async def test_environment_proxies_are_not_used(
    client: ProviderClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")
    fresh = new_client()
    async with raw_server(answering(ANSWER)) as server:
        assert success(await call(fresh, server.url))
    await fresh.close()


async def test_a_full_local_pool_is_nobodys_fault() -> None:
    """P37: no connection free in time: nothing was sent, nothing asked."""
    client, release = new_client(connect_seconds=0.1, pool=1), asyncio.Event()
    asked: list[str] = []

    async def slow(peer: Peer) -> None:
        await peer.request()
        await release.wait()
        await peer.answer(ANSWER)

    async def note() -> None:
        asked.append("second")

    async with raw_server(slow) as server:
        sent = asyncio.Event()

        async def first_sent() -> None:
            sent.set()

        first = asyncio.create_task(call(client, server.url, before_send=first_sent))
        await sent.wait()
        second = await call(client, server.url, before_send=note)
        assert (second.kind, second.sent, second.code, asked) == (
            OutcomeClass.TRANSIENT,
            False,
            "PoolTimeout",
            [],
        )
        release.set()
        assert success(await first)
    await client.close()


# ---------------------------------------------------------------- cancelled


async def test_cancelled_connects_leave_the_pool_whole() -> None:
    """P36: 2,400 calls cancelled while connecting: the next one works."""
    client = new_client(pool=8)
    with socket.socket() as deaf:  # its backlog is full: connecting hangs
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        fillers = [socket.socket() for _ in range(2)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(deaf.getsockname())
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        for size in (600, 600, 600, 600):
            tasks = [asyncio.create_task(call(client, url)) for _ in range(size)]
            await asyncio.sleep(0.05)
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(result, asyncio.CancelledError) for result in results)
        for filler in fillers:
            filler.close()
    async with raw_server(answering(ANSWER)) as server:
        answers = await asyncio.gather(*(call(client, server.url) for _ in range(16)))
        assert all(map(success, answers))
    await client.close()


async def test_cancelling_closes_the_connection(client: ProviderClient) -> None:
    """A cancelled call is not left running at the provider's expense."""
    got, gone = asyncio.Event(), asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        got.set()
        assert await peer.reader.read() == b""
        gone.set()

    async with raw_server(script) as server:
        task = asyncio.create_task(call(client, server.url))
        await got.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(gone.wait(), 2)


# ---------------------------------------------------------------- kept connections


async def test_a_connection_closed_while_idle(client: ProviderClient) -> None:
    """P37: the server closed a kept connection: the next call takes a new one."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.answer(ANSWER)

    async with raw_server(script) as server:
        assert success(await call(client, server.url))
        await asyncio.sleep(0.05)
        assert success(await call(client, server.url))
        assert server.connections == 2


class Closing:
    """A server that answers once per connection and closes it when told to."""

    def __init__(self) -> None:
        self.close, self.closed = asyncio.Event(), asyncio.Event()
        self.requests = 0

    async def script(self, peer: Peer) -> None:
        await peer.request()
        self.requests += 1
        await peer.answer(ANSWER)
        await self.close.wait()
        peer.writer.close()
        await peer.writer.wait_closed()
        self.closed.set()

    async def before_send(self) -> None:
        """Asking takes long enough for the server to lose patience."""
        self.close.set()
        await asyncio.wait_for(self.closed.wait(), 2)
        await asyncio.sleep(0.02)


async def test_a_connection_closed_while_asking(client: ProviderClient) -> None:
    """P37: closed between the choice of a connection and the first byte: certain that nothing was
    sent, so it is asked and sent once more."""
    closing, asked = Closing(), 0

    async def ask() -> None:
        nonlocal asked
        asked += 1
        if asked == 1:
            await closing.before_send()

    async with raw_server(closing.script) as server:
        assert success(await call(client, server.url))
        assert success(await call(client, server.url, before_send=ask))
    assert (asked, closing.requests) == (2, 2)


async def test_the_second_asking_may_refuse(client: ProviderClient) -> None:
    """P37: the store is asked again, and may say no by then."""
    closing, answers = Closing(), iter([True, False])

    async def ask() -> None:
        if not next(answers):
            raise NotSent
        await closing.before_send()

    async with raw_server(closing.script) as server:
        assert success(await call(client, server.url))
        with pytest.raises(NotSent):
            await call(client, server.url, before_send=ask)
        assert closing.requests == 1
        assert success(await call(client, server.url))


async def test_one_safe_retry_at_most() -> None:
    """P37: flagged, not sent, not counted; no third try."""
    client, asked = new_client(), 0

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.answer(ANSWER)
        await peer.reader.read(1)

    async def fill(server: RawServer) -> None:
        assert all(await asyncio.gather(*(call(client, server.url) for _ in range(4))))

    async with raw_server(script) as server:
        await fill(server)
        closers = list(server.peers)

        async def ask() -> None:
            nonlocal asked
            asked += 1
            for peer in closers:
                peer.writer.close()
            await asyncio.sleep(0.05)
            # The pool looks before it hands out: give it kept ones that are still open.
            if asked == 1:
                await fill(server)
                closers[:] = server.peers

        outcome = await call(client, server.url, before_send=ask)
    assert (outcome.kind, outcome.sent, outcome.code, asked) == (
        OutcomeClass.TRANSIENT,
        False,
        "stale_connection",
        2,
    )
    await client.close()


async def test_a_kept_connection_that_dies_with_the_request(client: ProviderClient) -> None:
    """P37: closed after the bytes left: flagged, never sent again by itself."""
    requests = 0

    async def script(peer: Peer) -> None:
        nonlocal requests
        await peer.request()
        requests += 1
        await peer.answer(ANSWER)
        await peer.request()
        requests += 1
        peer.reset()

    async with raw_server(script) as server:
        assert success(await call(client, server.url))
        outcome = await call(client, server.url)
    assert (outcome.kind, outcome.sent, outcome.code) == (
        OutcomeClass.UNKNOWN,
        True,
        "stale_connection",
    )
    assert requests == 2


async def test_cookies_are_not_kept(client: ProviderClient) -> None:
    heads: list[bytes] = []

    async def script(peer: Peer) -> None:
        while head := await peer.request():
            heads.append(head.lower())
            await peer.answer(ANSWER, extra="set-cookie: session=abc; path=/\r\n")

    async with raw_server(script) as server:
        await call(client, server.url)
        await call(client, server.url)
    assert not any(b"cookie:" in head for head in heads)


async def test_the_key_never_comes_back(client: ProviderClient) -> None:
    """Providers quote what they were sent."""
    body = f'{{"error": {{"message": "wrong key {KEY}", "code": "{KEY}"}}}}'.encode()
    for status in (200, 401, 500):
        outcome = await once(
            client, answering(body, status=status, extra=f"x-request-id: {KEY}\r\n")
        )
        assert KEY not in repr(outcome)
        assert "wrong key [secret]" in outcome.message
