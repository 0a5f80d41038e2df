"""Handlers on a virtual clock: what they return and raise, and what they show."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

import pytest

from llmqueue.app import CallRefused, Context, Failure, Reject, Retry
from llmqueue.job import MAX_RESULT_BYTES
from llmqueue.states import OutcomeClass, Severity
from support.scriptedhandlers import HandlerBench, play, works

# ---------------------------------------------------------------- what it returns


@pytest.mark.parametrize(
    "value",
    [None, 0, "é\ud800", [1, {"a": None}], {"x": 1.5}],
    ids=["null", "0", "text", "list", "object"],
)
def test_any_json_value_is_a_result(value: Any) -> None:
    """Q45"""

    async def scenario(bench: HandlerBench) -> None:
        async def handler(_ctx: Context) -> Any:
            return value

        works(bench, handler)
        await asyncio.sleep(1)
        outcome = bench.outcome()
        assert (outcome.kind, outcome.sent, outcome.own) == (OutcomeClass.SUCCESS, False, True)
        assert json.loads(outcome.result or b"") == value
        assert bench.settlement().entry is None

    play(scenario)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (object(), "is no JSON: Object of type object"),
        (float("nan"), "is no JSON"),
        ("x" * MAX_RESULT_BYTES, f"at most {MAX_RESULT_BYTES} are kept"),
    ],
    ids=["object", "nan", "too large"],
)
def test_other_results_are_refused_at_once(value: Any, words: str) -> None:
    async def scenario(bench: HandlerBench) -> None:
        async def handler(_ctx: Context) -> Any:
            return value

        works(bench, handler)
        await asyncio.sleep(1)
        assert bench.outcome().kind is OutcomeClass.PERMANENT
        assert words in bench.outcome().message

    play(scenario)


# ---------------------------------------------------------------- what it raises


@pytest.mark.parametrize(
    ("error", "kind", "message", "after"),
    [
        (ValueError("no such row"), OutcomeClass.TRANSIENT, "ValueError: no such row", None),
        (KeyError(), OutcomeClass.TRANSIENT, "KeyError", None),
        (SystemExit(3), OutcomeClass.TRANSIENT, "SystemExit: 3", None),
        (asyncio.CancelledError(), OutcomeClass.TRANSIENT, "CancelledError", None),
        (
            ExceptionGroup("many", [ValueError()]),
            OutcomeClass.TRANSIENT,
            "ExceptionGroup: many",
            None,
        ),
        (RuntimeError("api_key=sk-abcdefgh12345678"), OutcomeClass.TRANSIENT, "[secret]", None),
        (Retry("not yet", after_seconds=90), OutcomeClass.TRANSIENT, "not yet", 90),
        (Reject("never"), OutcomeClass.PERMANENT, "never", None),
        (CallRefused("too long", status=413), OutcomeClass.PERMANENT, "too long", None),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_what_it_raises_says_what_becomes_of_the_job(
    error: BaseException, kind: OutcomeClass, message: str, after: float | None
) -> None:
    async def scenario(bench: HandlerBench) -> None:
        async def handler(_ctx: Context) -> None:
            raise error

        works(bench, handler)
        await asyncio.sleep(1)
        outcome = bench.outcome()
        assert (outcome.kind, outcome.sent, outcome.own) == (kind, False, True)
        assert message in outcome.message
        assert outcome.retry_after_seconds == after
        assert bench.task is not None
        assert not bench.task.done(), "the worker lives"

    play(scenario)


def test_an_unknown_handler_is_tried_again() -> None:
    """In a rollout a newer worker may know it."""

    async def scenario(bench: HandlerBench) -> None:
        assert bench.app is not None

        @bench.app.handler("known")
        async def known(_ctx: Context) -> None: ...

        bench.run("new")
        await asyncio.sleep(1)
        assert bench.outcome().kind is OutcomeClass.TRANSIENT
        assert bench.outcome().message == "there is no handler 'new'; known handlers: known"

    play(scenario)


def test_a_rejection_has_a_severity() -> None:
    async def scenario(bench: HandlerBench) -> None:
        async def handler(_ctx: Context) -> None:
            raise Reject("look at this now", severity=Severity.CRITICAL)

        works(bench, handler)
        await asyncio.sleep(1)
        assert bench.outcome().severity is Severity.CRITICAL

    play(scenario)


# ---------------------------------------------------------------- progress, failures, none


def test_progress_is_written_once_a_second_and_at_the_end() -> None:
    async def scenario(bench: HandlerBench) -> None:
        async def handler(ctx: Context) -> None:
            for step in range(25):
                await ctx.progress(step / 25, f"step {step}")
                await asyncio.sleep(0.1)
            await ctx.progress(1.0, "all")

        works(bench, handler)
        await asyncio.sleep(10)
        times = [at for at, _, _ in bench.store.progressed]
        assert all(later - earlier > 0.99 for earlier, later in itertools.pairwise(times[:-1]))
        assert len(times) <= 4
        assert bench.store.progressed[-1][1:] == (1.0, "all")
        assert times[-1] <= bench.store.times("settle")[0]

    play(scenario)


@pytest.mark.parametrize("fraction", [-0.1, 1.1, float("nan")])
def test_progress_is_a_fraction(fraction: float) -> None:
    async def scenario(bench: HandlerBench) -> None:
        async def handler(ctx: Context) -> None:
            await ctx.progress(fraction)

        works(bench, handler)
        await asyncio.sleep(1)
        assert "a fraction from 0 to 1 is needed" in bench.outcome().message

    play(scenario)


EVENT = {
    "event_id": "j.f1", "job_id": "j", "queue": "default/q", "handler": "h", "tenant": "t",
    "feature": "f", "state": "dead", "outcome": "PERMANENT", "message": "why", "attempts": 2,
    "of_a_later_version": 1,
}  # fmt: skip


@pytest.mark.parametrize(
    ("raw", "payload"),
    [(b'{"a":1}', {"a": 1}), (b"[1]", None), (b"\xff\n", None), (b"", None)],
    ids=["object", "list", "bytes", "gone"],
)
def test_on_failure_hears_of_the_job(raw: bytes, payload: Any) -> None:
    async def scenario(bench: HandlerBench) -> None:
        heard: list[Failure] = []
        assert bench.app is not None

        @bench.app.on_failure
        async def failed(failure: Failure) -> None:
            heard.append(failure)

        bench.store.add(1, handler="\x01failure", payload=json.dumps(EVENT).encode() + b"\n" + raw)
        bench.run("nobody's")
        await asyncio.sleep(1)
        assert heard == [
            Failure("j.f1", "j", "default/q", "h", "t", "f", "dead", "PERMANENT", "why", 2, payload)
        ]
        assert bench.store.settled[0].outcome.kind is OutcomeClass.SUCCESS

    play(scenario)


def test_an_app_need_not_hear_of_failures() -> None:
    async def scenario(bench: HandlerBench) -> None:
        bench.store.add(1, handler="\x01failure", payload=json.dumps(EVENT).encode() + b"\n{}")
        bench.run("nobody's")
        await asyncio.sleep(1)
        assert bench.store.settled[0].outcome.kind is OutcomeClass.SUCCESS

    play(scenario)
