"""Which code carries out which fault."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

from llmqueue_cli.simulate.call import Call
from llmqueue_cli.simulate.catalogue import ERROR_ANSWERS, WITHOUT_STREAM
from llmqueue_cli.simulate.fault import Fault
from llmqueue_cli.simulate.misbehave.bodies import BODIES
from llmqueue_cli.simulate.misbehave.connections import CONNECTIONS
from llmqueue_cli.simulate.misbehave.errors import error_answer
from llmqueue_cli.simulate.plan import Work

CARRIED_OUT: Mapping[str, Callable[[Call, Fault, Work], Awaitable[None]]] = {
    **dict.fromkeys(ERROR_ANSWERS, error_answer),
    **BODIES,
    **CONNECTIONS,
}


async def misbehave(call: Call, fault: Fault, work: Work) -> None:
    """Answer a call as its fault says."""
    call.live.injected(fault.name)
    if not call.ask.stream and fault.name in WITHOUT_STREAM:
        fault = replace(fault, name=WITHOUT_STREAM[fault.name])
    await CARRIED_OUT[fault.name](call, fault, work)
