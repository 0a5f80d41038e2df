"""Handler jobs on a `StoreBench`: their calls, one after the other, as a worker makes them."""

from __future__ import annotations

import json
from typing import Any

from llmqueue.job import Charge
from llmqueue.outcome import Outcome, Usage
from llmqueue.states import OutcomeClass
from llmqueue.store.port import AcquireReply, CallRequest, FinishedCall, Grant, Settlement
from support.storebench import StoreBench


async def acquire(
    bench: StoreBench,
    grant: Grant,
    number: int = 1,
    *,
    tokens: tuple[int, int] = (10, 100),
    worst_nano_usd: int | None = 1_000_000,
    name: str = "",
    credential: str = "",
) -> AcquireReply:
    charge = Charge(*tokens, worst_nano_usd)
    request = CallRequest(
        grant.id, grant.fence, number, name or f"n{number}", charge, "m", credential
    )
    return await bench.store.acquire(bench.queue, request)


async def finish(
    bench: StoreBench,
    grant: Grant,
    number: int = 1,
    kind: OutcomeClass = OutcomeClass.SUCCESS,
    *,
    name: str = "",
    answer: bytes = b'{"n":1}',
    usage: Usage | None = None,
    credential: str = "",
    cost: int | None = 1000,
) -> bool:
    good = kind is OutcomeClass.SUCCESS
    outcome = Outcome(
        kind, usage=usage or (Usage(10, 20) if good else None), result=answer if good else None
    )
    settlement = Settlement(
        grant.id,
        grant.fence,
        outcome,
        credential=credential,
        entry={"job": grant.id, "call": number},
        cost_nano_usd=cost,
    )
    call = FinishedCall(settlement, number, name or f"n{number}")
    return (await bench.store.finish_calls(bench.queue, [call]))[0]


async def make_call(bench: StoreBench, grant: Grant, number: int = 1, **call: Any) -> bool:
    """Acquire, send and finish one call."""
    reply = await acquire(bench, grant, number, name=call.get("name", ""))
    assert reply.verdict == "granted", reply
    assert await bench.send(grant) == [True]
    return await finish(bench, grant, number, **call)


async def end_run(bench: StoreBench, grant: Grant, **outcome: Any) -> str:
    """The handler returned; or `kind` and more say what became of it."""
    kind = outcome.pop("kind", OutcomeClass.SUCCESS)
    reply = await bench.settle(grant, kind, sent=False, own=True, **outcome)
    return str(reply.state)


async def ledger(bench: StoreBench) -> list[dict[str, Any]]:
    rows = await bench.redis.xrange(bench.key("ledger"))
    return [
        {**json.loads(row[b"e"]), "kind": row[b"k"].decode(), "fence": row[b"f"].decode()}
        for _, row in rows
    ]


async def queue_facts(bench: StoreBench) -> dict[str, int]:
    """The numbers of `st:<queue>`."""
    raw = await bench.redis.hgetall(bench.key("st", bench.queue))
    return {name.decode(): int(float(value)) for name, value in raw.items()}
