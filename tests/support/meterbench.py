"""What the store has counted of a bench's queue, and the same from its ledger."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from llmqueue import ledger
from llmqueue.outcome import Outcome
from llmqueue.store.meters import UNNAMED_MODEL, Meters, meters_of
from llmqueue.store.port import Grant, Settlement
from support.handlerbench import ledger as ledger_rows
from support.storebench import StoreBench


@dataclass(frozen=True, slots=True)
class Bill:
    """Calls by model and class, tokens by model and type, nano-USD and unpriced calls by model."""

    calls: Mapping[tuple[str, ...], int]
    tokens: Mapping[tuple[str, ...], int]
    cost: Mapping[str, int]
    unpriced: Mapping[str, int]


def settlement(
    grant: Grant, outcome: Outcome, *, cost: int | None = 1000, call: int = 1, seconds: float = 1.5
) -> Settlement:
    """As a worker books it."""
    if not outcome.sent:
        return Settlement(grant.id, grant.fence, outcome)
    finished, usage = time.time(), ledger.billed_usage(grant, outcome)
    entry = ledger.entry(
        grant,
        outcome,
        call=call,
        started=finished - seconds,
        finished=finished,
        usage=usage,
        price=None,
    )
    paid = cost if usage else 0
    return Settlement(grant.id, grant.fence, outcome, entry=entry, cost_nano_usd=paid)


async def meters(bench: StoreBench) -> Meters:
    found = await bench.store.snapshot(bench.budget.budget, horizon_seconds=0, meters=True)
    (mine,) = (queue.meters for queue in found.queues if queue.queue == bench.queue)
    assert mine is not None
    return mine


async def raw_meters(bench: StoreBench) -> Meters:
    """From the keys themselves: a snapshot would do housekeeping first."""
    hashes = [await bench.redis.hgetall(bench.key(name, bench.queue)) for name in ("m", "st")]
    fields, stats = ({k.decode(): v.decode() for k, v in each.items()} for each in hashes)
    flat = [text for pair in fields.items() for text in pair]
    other = {name: stats.get(name, 0) for name in ("settled", "reclaims", "fenced")}
    stored = int(stats.get("seq", 0)) + int(stats.get("reported", 0))
    return meters_of({"m": flat, "enqueued": stored, **other})


async def credit(bench: StoreBench) -> Mapping[str, int]:
    """What was counted too much, by field, and is not used up yet."""
    return json.loads(await bench.redis.hget(bench.key("m", bench.queue), "credit") or "{}")


async def counted(bench: StoreBench) -> Bill:
    """The meters, without what is not used up."""
    found, bill = await raw_meters(bench), await owed(bench)
    return Bill(
        _less(found.calls, bill.calls),
        _less(found.tokens, bill.tokens),
        _less(found.cost_nano_usd, bill.cost),
        _less(found.unpriced, bill.unpriced),
    )


async def owed(bench: StoreBench) -> Bill:
    raw = await bench.redis.hget(bench.key("m", bench.queue), "models") or b""
    flat = ["models", raw.decode()]
    for field, value in (await credit(bench)).items():
        flat += [field, str(value)]
    names = ("enqueued", "settled", "reclaims", "fenced")
    found = meters_of({"m": flat, **dict.fromkeys(names, 0)})
    return Bill(found.calls, found.tokens, found.cost_nano_usd, found.unpriced)


def _less(found: Mapping[Any, int], taken: Mapping[Any, int]) -> dict[Any, int]:
    rest = {key: number - taken.get(key, 0) for key, number in found.items()}
    return {key: number for key, number in rest.items() if number}


async def billed(bench: StoreBench) -> Bill:
    """From the ledger: of a call that was booked twice the last entry counts."""
    rows = {(row["fence"], row.get("call")): row for row in await ledger_rows(bench)}
    calls, tokens = Counter[tuple[str, ...]](), Counter[tuple[str, ...]]()
    cost, unpriced = Counter[str](), Counter[str]()
    for row in rows.values():
        model = row.get("model") or UNNAMED_MODEL
        calls[model, row["class"]] += 1
        if row["nano_usd"] is None:
            unpriced[model] += 1
        else:
            cost[model] += row["nano_usd"]
        cached, written = row.get("cached_tokens", 0), row.get("cache_write_tokens", 0)
        reasoning = row.get("reasoning_tokens", 0)
        tokens[model, "input"] += row.get("input_tokens", 0) - cached - written
        tokens[model, "output"] += row.get("output_tokens", 0) - reasoning
        tokens[model, "cached_input"] += cached
        tokens[model, "cache_write"] += written
        tokens[model, "reasoning"] += reasoning
    return Bill(calls, _less(tokens, {}), _less(cost, {}), unpriced)
