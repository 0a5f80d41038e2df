"""A handler's calls on a virtual clock: recorded, replayed, refused, cancelled, left open."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

import pytest

from llmqueue.app import CallRefused, Context, Retry
from llmqueue.credentials import fingerprint
from llmqueue.errors import StoreUnavailable
from llmqueue.job import MAX_RESULT_BYTES
from llmqueue.outcome import Outcome, Usage
from llmqueue.states import OutcomeClass, WaitReason
from llmqueue.store.port import AcquireReply
from support.scriptedhandlers import HandlerBench, ask, play, works

# ---------------------------------------------------------------- calls


def test_a_call_is_recorded_before_the_function_goes_on() -> None:
    async def scenario(bench: HandlerBench) -> None:
        seen: list[int] = []

        async def handler(ctx: Context) -> str:
            found = await ask(ctx, "one", max_tokens=7)
            seen.append(len(bench.store.finished))
            return found

        job = works(bench, handler)
        await asyncio.sleep(5)
        (call,) = bench.store.finished
        entry = call.settlement.entry or {}
        assert (seen, call.number, entry["job"], entry["call"]) == ([1], 1, job, 1)
        assert (entry["model"], entry["input_tokens"], entry["output_tokens"]) == ("gpt-4o", 9, 4)
        request = bench.store.named("acquire")[0]
        assert (request.charge.output_tokens, request.model) == (7, "gpt-4o")

    play(scenario)


def test_heartbeats_tell_what_the_open_call_reserved() -> None:
    """Q39: a store that lost it charges this call again, and not what the claim had estimated."""

    async def scenario(bench: HandlerBench) -> None:
        bench.calls.seconds = 20.0
        job = works(bench, lambda ctx: ask(ctx, "one", max_tokens=7))
        await asyncio.sleep(10)
        held = bench.store.named("beat")[-1].held[job]
        charge = bench.store.named("acquire")[0].charge
        assert (held.input_tokens, held.output_tokens) == (charge.input_tokens, 7)

    play(scenario)


def test_a_journal_is_replayed_in_any_order() -> None:
    """Changed code never gets the answer of another request, and pays only for what is new."""

    async def scenario(bench: HandlerBench) -> None:
        order = ["a", "b", "a"]

        async def handler(ctx: Context) -> list[str]:
            found = [await ask(ctx, text) for text in order]
            if len(bench.store.settled) == 0:
                raise Retry("again")
            return found

        works(bench, handler)
        await asyncio.sleep(10)
        names = [call.name for call in bench.store.finished]
        assert len(set(names)) == 3, "the same request twice is two calls"
        order[:] = ["c", "a", "b", "a", "a"]
        bench.run("work", fields={"journaled": True})
        await asyncio.sleep(10)
        assert bench.texts == ["a", "b", "a", "c", "a"]
        outcome = bench.store.settled[-1].outcome
        assert json.loads(outcome.result or b"") == ["c", "a", "b", "a", "a"]

    play(scenario)


def test_a_key_that_is_replaced_is_used_by_the_next_call(tmp_path: Path) -> None:
    """A run may outlive its key: waiting for the old one, which is paused, it would wait for ever."""
    key = tmp_path / "key"
    key.write_text("old")

    async def scenario(bench: HandlerBench) -> None:
        async def handler(ctx: Context) -> None:
            await ask(ctx, "one")
            key.write_text("replaced")
            bench.store.acquires.append(AcquireReply("wait", 3, WaitReason.PAUSED))
            await ask(ctx, "two")
            key.unlink()
            waits.append(await asyncio.gather(ask(ctx, "three"), later()))

        async def later() -> None:
            await asyncio.sleep(20)
            key.write_text("third")

        waits: list[Any] = []
        works(bench, handler)
        await asyncio.sleep(60)
        asked = [request.credential for request in bench.store.named("acquire")]
        sent = [credential for _, credential in bench.store.named("mark_sent")]
        old, replaced, third = map(fingerprint, ("old", "replaced", "third"))
        assert asked == [old, replaced, replaced, third]
        assert sent == [old, replaced, third]
        assert [c.settlement.credential for c in bench.store.finished] == sent

    play(scenario, api_key_file=key)


def test_a_heartbeat_says_what_the_open_call_reserved() -> None:
    async def scenario(bench: HandlerBench) -> None:
        bench.calls.seconds = 8
        bench.store.acquires.append(AcquireReply("granted", input_tokens=123, output_tokens=45))

        async def handler(ctx: Context) -> None:
            await ask(ctx, "x")

        job = works(bench, handler)
        await asyncio.sleep(4)
        held = bench.store.named("beat")[-1].held[job]
        assert (held.input_tokens, held.output_tokens) == (123, 45)

    play(scenario)


def test_a_call_in_doubt_is_marked_when_it_is_made_again() -> None:
    async def scenario(bench: HandlerBench) -> None:
        async def handler(ctx: Context) -> None:
            await ask(ctx, "known")
            await ask(ctx, "in doubt")

        works(bench, handler)
        await asyncio.sleep(5)
        bench.store.in_doubt.add(bench.store.finished[1].name)
        bench.store.answers.clear()
        bench.store.finished.clear()
        bench.run("work", fields={"journaled": True, "possible_duplicate": True})
        await asyncio.sleep(5)
        marks = [
            call.settlement.entry.get("possible_duplicate")
            for call in bench.store.finished
            if call.settlement.entry
        ]
        assert marks == [None, True]

    play(scenario)


def test_the_name_at_the_provider_is_the_same_in_every_run() -> None:
    async def scenario(bench: HandlerBench) -> None:
        async def handler(ctx: Context) -> None:
            await ask(ctx, "x")

        works(bench, handler)
        await asyncio.sleep(5)
        bench.store.answers.clear()
        bench.run("work")
        await asyncio.sleep(5)
        assert bench.calls.made[0][1] == bench.calls.made[1][1]

    play(scenario)


@pytest.mark.parametrize(
    "kind", [OutcomeClass.RATE, OutcomeClass.UNKNOWN, OutcomeClass.MALFORMED, OutcomeClass.AUTH]
)
@pytest.mark.parametrize("swallows", [False, True], ids=["let through", "swallowed"])
def test_a_failed_call_ends_the_run_whatever_the_function_does(
    kind: OutcomeClass, swallows: bool
) -> None:
    async def scenario(bench: HandlerBench) -> None:
        bench.calls.outcomes["bad"] = Outcome(kind, status=429, message="from the provider")

        async def handler(ctx: Context) -> str:
            for _ in range(3):
                try:
                    await ask(ctx, "bad")
                except Exception:
                    return "an `except Exception` does not see it"
                except BaseException:
                    if not swallows:
                        raise
            return "swallowed"

        works(bench, handler)
        await asyncio.sleep(5)
        assert bench.texts == ["bad"], "nothing leaves after it"
        settlement = bench.settlement()
        assert (settlement.outcome.kind, settlement.outcome.sent) == (kind, True)
        assert settlement.entry is not None
        assert settlement.entry["call"] == 1
        assert bench.store.finished == []

    play(scenario)


def test_a_refused_call_is_recorded_and_may_be_caught() -> None:
    async def scenario(bench: HandlerBench) -> None:
        bench.calls.outcomes["bad"] = Outcome(
            OutcomeClass.PERMANENT, status=400, message="context too long", code="context"
        )
        caught: list[CallRefused] = []

        async def handler(ctx: Context) -> str:
            try:
                await ask(ctx, "bad")
            except CallRefused as exc:
                caught.append(exc)
            return await ask(ctx, "good")

        works(bench, handler)
        await asyncio.sleep(5)
        assert [(c.number, c.settlement.outcome.kind) for c in bench.store.finished] == [
            (1, OutcomeClass.PERMANENT), (2, OutcomeClass.SUCCESS),
        ]  # fmt: skip
        assert (caught[0].status, caught[0].code, str(caught[0])) == (
            400,
            "context",
            "context too long",
        )
        assert bench.outcome().kind is OutcomeClass.SUCCESS

    play(scenario)


@pytest.mark.parametrize(
    ("payload", "reply", "words"),
    [
        ({"model": "m"}, None, "payload.messages: a list"),
        ({"model": "m", "messages": [{"role": "user", "content": {1}}]}, None, "payload: no JSON"),
        ({"model": "m", "messages": [{"role": "user", "content": "x"}]},
         AcquireReply("too-large", limit="tokens/60"), "too large for tokens/60"),
        ({"model": "m", "messages": [{"role": "user", "content": "x"}]},
         AcquireReply("not-allowed", limit="a, b"), "'m' is not allowed in this queue; allowed: a, b"),
    ],
    ids=["no messages", "no JSON", "too large", "model"],
)  # fmt: skip
def test_a_call_that_can_never_be_made_is_refused(
    payload: dict[str, Any], reply: AcquireReply | None, words: str
) -> None:
    async def scenario(bench: HandlerBench) -> None:
        if reply is not None:
            bench.store.acquires.append(reply)

        async def handler(ctx: Context) -> Any:
            return await ctx.llm.post(payload)

        works(bench, handler)
        await asyncio.sleep(5)
        outcome = bench.outcome()
        assert (outcome.kind, outcome.sent) == (OutcomeClass.PERMANENT, False)
        assert words in outcome.message
        assert bench.texts == []

    play(scenario)


def test_an_answer_that_is_too_large_to_keep_is_paid_and_refused() -> None:
    async def scenario(bench: HandlerBench) -> None:
        bench.calls.outcomes["long"] = Outcome(
            OutcomeClass.SUCCESS, usage=Usage(1, 1), result=b"x" * (MAX_RESULT_BYTES + 1)
        )

        async def handler(ctx: Context) -> None:
            await ask(ctx, "long")

        works(bench, handler)
        await asyncio.sleep(5)
        (call,) = bench.store.finished
        assert (call.settlement.outcome.code, call.settlement.entry is None) == (
            "result_too_large",
            False,
        )
        assert bench.outcome().kind is OutcomeClass.PERMANENT

    play(scenario)


def test_calls_are_made_one_at_a_time() -> None:
    async def scenario(bench: HandlerBench) -> None:
        async def handler(ctx: Context) -> list[str]:
            return list(await asyncio.gather(*(ask(ctx, str(n)) for n in range(3))))

        works(bench, handler)
        await asyncio.sleep(10)
        assert bench.store.times("mark_sent") == pytest.approx([0, 1, 2])
        assert json.loads(bench.outcome().result or b"") == ["0", "1", "2"]

    play(scenario)


def test_a_bug_of_ours_is_no_error_of_the_handler() -> None:
    async def scenario(bench: HandlerBench) -> None:
        bench.calls.outcomes["x"] = ZeroDivisionError()

        async def handler(ctx: Context) -> None:
            with contextlib.suppress(Exception):
                await ask(ctx, "x")

        works(bench, handler)
        await asyncio.sleep(5)
        assert (bench.outcome().kind, bench.outcome().code) == (
            OutcomeClass.UNKNOWN,
            "internal_error",
        )

    play(scenario)


# ---------------------------------------------------------------- tasks it leaves behind


def test_a_call_that_is_left_open_comes_to_its_end() -> None:
    async def scenario(bench: HandlerBench) -> None:
        left: list[asyncio.Task[str]] = []

        async def handler(ctx: Context) -> str:
            left.append(asyncio.create_task(ask(ctx, "left open")))
            left.append(asyncio.create_task(ask(ctx, "too late")))
            await asyncio.sleep(0.5)
            return "done"

        works(bench, handler)
        await asyncio.sleep(10)
        assert bench.texts == ["left open"]
        assert len(bench.store.finished) == 1
        assert bench.store.times("settle") == pytest.approx([1.0])
        with pytest.raises(RuntimeError, match="the handler has returned"):
            await left[1]

    play(scenario)


def test_a_call_that_the_function_cancels_has_an_unknown_outcome() -> None:
    async def scenario(bench: HandlerBench) -> None:
        async def handler(ctx: Context) -> str:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ask(ctx, "slow"), 0.5)
            return "without it"

        works(bench, handler)
        await asyncio.sleep(5)
        assert (bench.outcome().kind, bench.outcome().code) == (
            OutcomeClass.UNKNOWN,
            "call_cancelled",
        )
        assert bench.settlement().entry is not None

    play(scenario)


def test_a_call_that_is_cancelled_before_it_left_costs_nothing() -> None:
    async def scenario(bench: HandlerBench) -> None:
        bench.calls.connect_seconds = 10

        async def handler(ctx: Context) -> str:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ask(ctx, "slow"), 0.5)
            bench.calls.connect_seconds = 0
            return await ask(ctx, "second")

        works(bench, handler)
        await asyncio.sleep(5)
        assert (bench.texts, bench.outcome().kind) == (["second"], OutcomeClass.SUCCESS)

    play(scenario)


def test_a_cancelled_task_does_not_lose_what_its_call_came_to() -> None:
    async def scenario(bench: HandlerBench) -> None:
        bench.store.faults["finish_calls"].extend([StoreUnavailable("away")] * 5)

        async def handler(ctx: Context) -> str:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ask(ctx, "answered"), 1.05)
            return f"went on after {len(bench.store.finished)}"

        works(bench, handler)
        await asyncio.sleep(30)
        assert json.loads(bench.outcome().result or b"") == "went on after 1"
        assert bench.outcome().kind is OutcomeClass.SUCCESS

    play(scenario)
