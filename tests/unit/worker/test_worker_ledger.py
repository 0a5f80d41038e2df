"""The record of a call."""

from __future__ import annotations

from llmqueue.ledger import entry
from llmqueue.outcome import Outcome, Usage
from llmqueue.states import OutcomeClass
from support.memorystore import grant


def test_an_entry_has_all_that_is_known() -> None:
    job = grant(tenant="acme", feature="mail", possible_duplicate=True, correlation_id="trace-1")
    usage = Usage(
        1000,
        500,
        cached_tokens=200,
        cache_write_tokens=100,
        cache_write_1h_tokens=40,
        reasoning_tokens=300,
        estimated=True,
    )
    outcome = Outcome(
        OutcomeClass.SUCCESS, status=200, model="m-2026", request_id="req-1", usage=usage
    )
    record = entry(job, outcome, call=2, started=10.0004, finished=12.5, usage=usage, price="3/15")
    assert record == {
        "job": "job-1",
        "call": 2,
        "tenant": "acme",
        "feature": "mail",
        "model": "m-2026",
        "started": 10.0,
        "finished": 12.5,
        "input_tokens": 1000,
        "output_tokens": 500,
        "cached_tokens": 200,
        "cache_write_tokens": 100,
        "cache_write_1h_tokens": 40,
        "reasoning_tokens": 300,
        "estimated": True,
        "price": "3/15",
        "status": 200,
        "request_id": "req-1",
        "possible_duplicate": True,
        "correlation_id": "trace-1",
    }


def test_what_is_not_known_is_left_out_and_an_explicit_0_is_a_0() -> None:
    outcome = Outcome(OutcomeClass.SUCCESS)
    record = entry(
        grant(), outcome, call=1, started=1.0, finished=2.0, usage=Usage(0, 0), price=None
    )
    assert (record["input_tokens"], record["output_tokens"], record["model"]) == (0, 0, "m")
    for name in ("estimated", "price", "status", "request_id", "possible_duplicate"):
        assert name not in record
    refused = Outcome(OutcomeClass.RATE, status=429)
    bare = entry(grant(), refused, call=1, started=1.0, finished=2.0, usage=None, price=None)
    assert "input_tokens" not in bare
