"""The simulated provider on real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, cast
from urllib.parse import urlsplit

import h11

from llmqueue_cli.simulate.control import PREFIX, control
from llmqueue_cli.simulate.limits import Limits
from llmqueue_cli.simulate.options import ProviderOptions
from llmqueue_cli.simulate.schedule import Rule, Schedule
from llmqueue_cli.simulate.service import Service
from llmqueue_cli.simulate.wire import BadHttp, ClientGone, Head, Wire, raw_head

_BACKLOG = 1024
_JSON = ("content-type", "application/json")


class FakeProvider:
    """`async with FakeProvider(ProviderOptions(limits=Limits(requests=60))) as fake: fake.url`.

    It keeps its own limits honestly and misbehaves on request; see control.py for what it can be
    asked over HTTP. OSError where the port is taken.

    Args:
        clock: monotonic seconds. wall: Unix seconds.
    """

    def __init__(
        self,
        options: ProviderOptions,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._options = options
        self._clock = clock
        self._service = Service(options, clock=clock, wall=wall)
        self._server: asyncio.Server | None = None
        self._port = options.port
        self._wires: dict[asyncio.Task[None], Wire] = {}
        self._listening: asyncio.Task[None] | None = None

    # ---- what it is and what it counted

    @property
    def url(self) -> str:
        """Without a path: OpenAI clients append /v1, Anthropic's nothing."""
        return f"http://{self._options.host}:{self._port}"

    @property
    def limits(self) -> Limits:
        return self._service.limiter.limits

    def stats(self) -> dict[str, Any]:
        """All counts; see Ledger.stats."""
        return {"shape": self._options.shape, **self._service.ledger.stats(self.limits)}

    def calls(self, *, since: int = 0) -> list[dict[str, Any]]:
        """The log of calls from number `since` on; see CallRecord."""
        return list(self._service.ledger.log(since))

    def billed(self) -> Mapping[str, int]:
        """How often each job was billed."""
        return self._service.ledger.billed_by_job()

    # ---- what can be changed while it runs

    def reset(self) -> None:
        """Forget all counts; what the limits counted stays."""
        self._service.ledger.reset()

    def set_limits(self, limits: Limits) -> None:
        self._service.limiter.limits = limits

    def set_faults(self, rules: Sequence[Rule]) -> None:
        """Replace the script; its times count from now."""
        service = self._service
        service.schedule = Schedule(rules, started=self._clock(), rng=service.rng)
        self._follow_schedule()

    # ---- sockets

    async def start(self) -> None:
        await self._listen()
        self._follow_schedule()

    async def stop(self) -> None:
        """End at once; running calls are cut."""
        tasks = [*self._wires, *([self._listening] if self._listening else [])]
        for wire in self._wires.values():
            wire.drop()
        for task in tasks:
            task.cancel()
        self._close_listener()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(
            self._connected, self._options.host, self._port, backlog=_BACKLOG
        )
        self._port = int(self._server.sockets[0].getsockname()[1])

    def _close_listener(self) -> None:
        if self._server:
            self._server.close()
            self._server = None

    def _follow_schedule(self) -> None:
        """Close and open the listener as the script says, from now on."""
        if self._listening:
            self._listening.cancel()
        spans = self._service.schedule.closed_spans()
        self._listening = asyncio.create_task(self._close_and_open(spans))

    async def _close_and_open(self, spans: Sequence[tuple[float, float]]) -> None:
        if self._server is None:
            await self._listen()
        for start, end in spans:
            await asyncio.sleep(max(0.0, start - self._clock()))
            self._close_listener()
            for wire in list(self._wires.values()):
                if wire.idle:
                    wire.drop()
            await asyncio.sleep(max(0.0, end - self._clock()))
            await self._listen()

    # ---- connections

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = cast("asyncio.Task[None]", asyncio.current_task())
        wire = Wire(reader, writer, idle_seconds=self._options.idle_seconds)
        self._wires[task] = wire
        try:
            await self._converse(wire)
        except BadHttp as exc:
            await self._complain(wire, str(exc))
        except ClientGone:
            pass
        except asyncio.CancelledError:
            # By stop() only. Python 3.11's streams report a cancelled task as an error.
            wire.drop()
        finally:
            del self._wires[task]
            await wire.close()

    async def _converse(self, wire: Wire) -> None:
        while True:
            head = await wire.read_head()
            if head is None:
                return
            await self._one(head, wire)
            if self._server is None or not wire.next():
                return

    async def _one(self, head: Head, wire: Wire) -> None:
        path = urlsplit(head.target).path
        if path.startswith(PREFIX):
            status, document = control(self, head.method, head.target, await wire.read_body())
            await wire.answer(status, [_JSON], json.dumps(document).encode())
        elif head.method == "POST" and path in self._service.shape.paths:
            await self._service.handle(head, wire)
        else:
            await wire.read_body()
            words = {"error": {"message": f"no {head.method} {path}", "type": "not_found_error"}}
            await wire.answer(404, [_JSON], json.dumps(words).encode())

    @staticmethod
    async def _complain(wire: Wire, message: str) -> None:
        body = json.dumps({"error": {"message": message, "type": "invalid_request_error"}}).encode()
        head = raw_head(400, [_JSON, ("content-length", str(len(body))), ("connection", "close")])
        with contextlib.suppress(ClientGone, h11.LocalProtocolError):
            await wire.raw(head + body)
