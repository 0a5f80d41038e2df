"""Handlers that the tests' workers run: they do what the files in their working directory say."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from llmqueue.app import App, CallRefused, Context, Failure, Reject

app = App()


async def ask(ctx: Context, text: str) -> dict[str, Any]:
    message = {"role": "user", "content": text}
    return await ctx.llm.chat(model="gpt-4o-mini", messages=[message], max_tokens=5)


def told_to_stop(name: str) -> bool:
    """A file says so, once."""
    found = Path(name).exists()
    Path(name).unlink(missing_ok=True)
    return found


async def gate(name: str) -> None:
    if told_to_stop(name):
        await asyncio.Event().wait()


def write(name: str, line: str) -> None:
    with Path(name).open("a") as file:
        file.write(line + "\n")


@app.handler("five")
async def five(ctx: Context, directive: str = "") -> list[str]:
    """Five calls, and the id of each answer."""
    answers: list[str] = []
    for number in range(1, 6):
        await gate(f"{ctx.job_id}.before-{number}")
        directives = directive if number == 3 else ""
        answers.append((await ask(ctx, f"call {number} {directives}"))["id"])
        await ctx.progress(number / 5, f"call {number}")
        await gate(f"{ctx.job_id}.after-{number}")
    return answers


@app.handler()
async def twice_the_same(ctx: Context) -> list[str]:
    return [(await ask(ctx, "the same"))["id"] for _ in range(2)]


@app.handler()
async def side_by_side(ctx: Context, seconds: float) -> int:
    """Calls are made one after the other all the same."""
    text = f"[[sim:latency={seconds}]]"
    answers = await asyncio.gather(*(ask(ctx, f"{n} {text}") for n in range(3)))
    return len({answer["id"] for answer in answers})


@app.handler()
async def refused_once(ctx: Context) -> str:
    """A request that the provider never takes, and one that it does."""
    try:
        await ask(ctx, "[[sim:fault=400]]")
    except CallRefused as exc:
        await ask(ctx, f"instead of {exc.status}")
        return str(exc.status)
    return "not refused"


@app.handler()
async def fails(ctx: Context, calls: int = 0) -> None:
    for number in range(calls):
        await ask(ctx, f"before it fails {number}")
    raise Reject("this can never work")


@app.handler()
async def naps(ctx: Context, seconds: float) -> str:
    """Own code alone."""
    write("napping", ctx.job_id)
    await asyncio.sleep(seconds)
    return "rested"


@app.on_failure
async def failed(failure: Failure) -> None:
    write("failures", f"{failure.event_id} {failure.state} {failure.message}")
