"""`llmqueue fake-provider`."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from inspect import getdoc
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from llmqueue_cli.execution import complain, run
from llmqueue_cli.exits import Exit
from llmqueue_cli.simulate.catalogue import FAULTS
from llmqueue_cli.simulate.distribution import parse_distribution, read_trace
from llmqueue_cli.simulate.limits import Limits
from llmqueue_cli.simulate.options import ProviderOptions
from llmqueue_cli.simulate.schedule import parse_script

T = TypeVar("T")


class ShapeChoice(StrEnum):
    OPENAI = "openai"
    ANTHROPIC = "anthropic"


class CountingChoice(StrEnum):
    KEEP = "keep"
    CORRECT = "correct"


_DISTRIBUTION = "NUMBER, constant:NUMBER or lognormal:MEAN,SIGMA"


def _read(name: str, read: Callable[[str], T], text: str) -> T:
    """An option's value, or its fault as wrong use."""
    try:
        return read(text)
    except (ValueError, OSError) as exc:
        raise typer.BadParameter(str(exc), param_hint=name) from exc


def fake_provider(  # noqa: PLR0917 - parameters are the command's options
    shape: Annotated[ShapeChoice, typer.Option(help="Whose protocol.")] = ShapeChoice.OPENAI,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 0,
    rpm: Annotated[int | None, typer.Option(min=0, help="Requests a minute.")] = None,
    tpm: Annotated[int | None, typer.Option(min=0, help="Tokens a minute.")] = None,
    itpm: Annotated[int | None, typer.Option(min=0, help="Input tokens a minute.")] = None,
    otpm: Annotated[int | None, typer.Option(min=0, help="Output tokens a minute.")] = None,
    per_second: Annotated[
        bool, typer.Option("--per-second", help="Enforce a bucket a second as well.")
    ] = False,
    window_seconds: Annotated[
        float, typer.Option(min=0.01, help="What a minute is; shorter for experiments.")
    ] = 60.0,
    token_counting: Annotated[
        CountingChoice | None,
        typer.Option(
            help="Count reservations or actual usage; as the shape's provider does by default."
        ),
    ] = None,
    count_refused: Annotated[
        bool, typer.Option("--count-refused", help="Refused calls use up requests as well.")
    ] = False,
    no_limit_headers: Annotated[
        bool, typer.Option("--no-limit-headers", help="Say nothing of limits in headers.")
    ] = False,
    honour_idempotency: Annotated[
        bool, typer.Option("--honour-idempotency", help="Answer a repeated key without a bill.")
    ] = False,
    latency: Annotated[
        str, typer.Option(metavar="DISTRIBUTION", help=f"Seconds a call: {_DISTRIBUTION}.")
    ] = "0",
    output: Annotated[
        str, typer.Option(metavar="DISTRIBUTION", help="Output tokens a call, likewise.")
    ] = "50",
    seconds_per_token: Annotated[
        float, typer.Option(min=0, help="Added to the latency for each output token.")
    ] = 0.0,
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="CSV TIMESTAMP,ContextTokens,GeneratedTokens in place of --output."
        ),
    ] = None,
    script: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help='JSON list of {"from_s", "to_s", "fault", "probability", "count", …}.',
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of all that is drawn by chance.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="End with the counts on one line.")] = (
        False
    ),
) -> None:
    """Run a simulated LLM provider that keeps limits and misbehaves on request.

    A request asks for a fault by the header x-sim-fault: NAME key=value, or in double square
    brackets in its text: sim:fault=NAME key=value. What the call takes is set likewise:
    sim:latency=2.5 output=100. Counts: GET /_sim/stats.
    """
    outputs = (
        _read("--trace", lambda text: read_trace(Path(text)), str(trace))
        if trace
        else _read("--output", parse_distribution, output)
    )
    rules = (
        _read("--script", lambda text: parse_script(Path(text).read_bytes()), str(script))
        if script
        else ()
    )
    options = ProviderOptions(
        shape=shape.value,
        host=host,
        port=port,
        limits=Limits(rpm, tpm, itpm, otpm),
        window_seconds=window_seconds,
        per_second=per_second,
        token_counting=token_counting.value if token_counting else None,
        count_refused=count_refused,
        limit_headers=not no_limit_headers,
        honour_idempotency=honour_idempotency,
        latency=_read("--latency", parse_distribution, latency),
        output_tokens=outputs,
        seconds_per_token=seconds_per_token,
        script=rules,
        seed=seed,
    )

    async def work() -> Exit:
        from llmqueue_cli.simulate.serving import serve  # noqa: PLC0415 - keeps --help fast

        try:
            await serve(options, as_json=as_json)
        except OSError as exc:
            complain(f"cannot listen on {host}:{port}: {exc.strerror or exc}")
            return Exit.FAILED
        return Exit.OK

    run(work)


fake_provider.__doc__ = f"{getdoc(fake_provider)}\n\nFaults: {', '.join(sorted(FAULTS))}."
