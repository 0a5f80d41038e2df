"""From a request to an answer: count, limit, then work or misbehave."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from llmqueue_cli.simulate.call import Call
from llmqueue_cli.simulate.fault import BadFault, Fault, directives, fault_of
from llmqueue_cli.simulate.ledger import Ledger, LiveCall
from llmqueue_cli.simulate.limiter import Limiter, Refusal
from llmqueue_cli.simulate.limits import Demand
from llmqueue_cli.simulate.misbehave.carry_out import misbehave
from llmqueue_cli.simulate.options import ProviderOptions
from llmqueue_cli.simulate.plan import Planner, Work
from llmqueue_cli.simulate.schedule import LISTENER_FAULT, Schedule
from llmqueue_cli.simulate.shapes.anthropic import AnthropicShape
from llmqueue_cli.simulate.shapes.openai import OpenAIShape
from llmqueue_cli.simulate.shapes.port import Ask, BadRequest, Shape
from llmqueue_cli.simulate.wire import Head, Wire

_NOTHING = Ask("", 0, None)
_EARLY = "reset_before_reading"


@dataclass(frozen=True, slots=True)
class Received:
    """A request as it was understood. `who` is the job, or stands for one."""

    ask: Ask = _NOTHING
    asked: Mapping[str, str] = field(default_factory=dict[str, str])
    fault: Fault | None = None
    wrong: str = ""
    """Why it is answered 400; empty where it is not."""
    who: str = ""


def _shape(options: ProviderOptions) -> Shape:
    return OpenAIShape() if options.shape == "openai" else AnthropicShape()


class Service:
    """One simulated provider without its sockets.

    Args:
        clock: monotonic seconds. wall: Unix seconds.
    """

    def __init__(
        self,
        options: ProviderOptions,
        *,
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self.rng = random.Random(options.seed)
        self.shape = _shape(options)
        self.clock = clock
        self.limiter = Limiter(
            options.limits,
            clock=clock,
            window_seconds=options.window_seconds,
            per_second=options.per_second,
            counting=options.counting,
            count_refused=options.count_refused,
        )
        self.ledger = Ledger(
            clock=clock,
            wall=wall,
            counting=options.counting,
            window_seconds=options.window_seconds,
        )
        self.schedule = Schedule(options.script, started=clock(), rng=self.rng)
        self._planner = Planner(options, self.rng)
        self._honour_idempotency = options.honour_idempotency
        self._tells_limits = options.limit_headers
        self._answered: dict[str, tuple[Work, str]] = {}
        self._running: dict[str, asyncio.Event] = {}

    async def handle(self, head: Head, wire: Wire) -> None:
        """Take one call from its head to the end of its answer. Raises ClientGone, BadHttp."""
        scheduled = self.schedule.pick(self.clock())
        marked = head.headers.get("x-sim-fault", "").split(" ")[0]
        if marked == _EARLY or (scheduled and scheduled.name == _EARLY and not marked):
            self._reset_unread(head, wire)
            return
        received = self._receive(head, await wire.read_body(), scheduled)
        await self._take(self._arrive(head, received.ask), wire, received)

    def _receive(self, head: Head, body: bytes, scheduled: Fault | None) -> Received:
        """Understand a request; what is wrong with it is for the answer to say."""
        ask = _NOTHING
        try:
            ask = self._read(body)
            asked = directives(head.headers, body)
            fault = _call_fault(asked) or scheduled
        except (BadFault, BadRequest) as exc:
            return Received(ask, wrong=str(exc))
        job = _key(head).rpartition("/")[0]
        return Received(ask, asked, fault, who=job or hashlib.sha256(body).hexdigest())

    def _arrive(self, head: Head, ask: Ask) -> LiveCall:
        return self.ledger.arrive(
            key=_key(head),
            demand=ask.demand,
            limits=self.limiter.limits,
            model=ask.model,
            stream=ask.stream,
        )

    def _read(self, body: bytes) -> Ask:
        try:
            document: Any = json.loads(body)
        except (ValueError, RecursionError):
            raise BadRequest("the body of the request is not valid JSON") from None
        if not isinstance(document, dict):
            raise BadRequest("the body of the request is no JSON object")
        return self.shape.read(cast("Mapping[str, Any]", document))

    def _reset_unread(self, head: Head, wire: Wire) -> None:
        live = self._arrive(head, _NOTHING)
        self.limiter.admit(Demand())
        live.injected(_EARLY)
        wire.reset()
        live.ended()

    async def _take(self, live: LiveCall, wire: Wire, received: Received) -> None:
        ask = received.ask
        admission = self.limiter.admit(ask.demand)
        call = Call(
            self.shape,
            self.limiter,
            live,
            wire,
            ask,
            admission,
            self.ledger.now,
            tells_limits=self._tells_limits,
        )
        try:
            if isinstance(admission, Refusal):
                await call.refuse(admission)
            elif received.wrong:
                await call.bad_request(received.wrong)
            else:
                await self._answer(call, received)
        except BadFault as exc:
            await call.bad_request(str(exc))
        finally:
            call.finish()

    async def _answer(self, call: Call, received: Received) -> None:
        work = self._planner.work(received.ask, received.asked)
        key = call.live.record.key
        if not (self._honour_idempotency and key):
            await self._work_or_misbehave(call, work, received)
            return
        while key in self._running:
            await self._running[key].wait()
        if key in self._answered:
            work, call.request_id = self._answered[key]
            call.live.record.replayed = True
            await call.good(Work(0.0, work.usage))
            return
        self._running[key] = asyncio.Event()
        try:
            await self._work_or_misbehave(call, work, received)
        finally:
            if call.live.record.billed:
                self._answered[key] = (work, call.request_id)
            self._running.pop(key).set()

    async def _work_or_misbehave(self, call: Call, work: Work, received: Received) -> None:
        fault = received.fault
        if fault and self._planner.still_faulty(fault, received.who):
            await misbehave(call, fault, work)
        else:
            await call.good(work)


def _key(head: Head) -> str:
    """The idempotency key "<job id>/<call>", wherever the client put it."""
    return head.headers.get("idempotency-key") or head.headers.get("x-client-request-id", "")


def _call_fault(asked: Mapping[str, str]) -> Fault | None:
    fault = fault_of(asked)
    if fault and fault.name == LISTENER_FAULT:
        raise BadFault(f"{LISTENER_FAULT} is for scripts: a call cannot ask for it")
    return fault
