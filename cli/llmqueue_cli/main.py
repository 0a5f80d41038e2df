"""`llmqueue`: the command table. What a command needs beyond options is imported when it runs."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Annotated

import typer

from llmqueue import __version__
from llmqueue_cli.commands import batches, intake, jobs, queues, run
from llmqueue_cli.execution import complain
from llmqueue_cli.exits import Exit
from llmqueue_cli.simulate.command import fake_provider

app = typer.Typer(
    name="llmqueue",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # loading rich would double the time of --help
    context_settings={"help_option_names": ["-h", "--help"]},
    help="LLM jobs at exactly the provider's pace.",
    epilog=(
        "Exit codes: 0 ok, 1 failed, 2 wrong use, 3 the store cannot be used, 4 no such queue or"
        " job, 5 the queue is full, 130 interrupted."
    ),
)

RUN, JOBS, QUEUES = "Run", "Jobs", "Queues"


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"llmqueue {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print it."),
    ] = False,
) -> None:
    """LLM jobs at exactly the provider's pace."""


def _register() -> None:
    table: dict[str, dict[str, Callable[..., None]]] = {
        RUN: {"demo": run.demo, "up": run.up, "fake-provider": fake_provider},
        JOBS: {
            "enqueue": intake.enqueue,
            "jobs": jobs.jobs,
            "job": jobs.job,
            "why": jobs.why,
            "cancel": jobs.cancel,
            "batches": batches.batches,
            "batch": batches.batch,
        },
        QUEUES: {
            "queues": queues.queues,
            "queue": queues.queue,
            "tenants": queues.tenants,
            "suspend": queues.suspend,
            "unsuspend": queues.unsuspend,
            "resume": queues.resume,
        },
    }
    for panel, commands in table.items():
        for name, command in commands.items():
            app.command(name, rich_help_panel=panel)(command)
    app.add_typer(jobs.review, name="review", rich_help_panel=JOBS)


_register()


def main() -> None:
    """The console script; never shows a traceback unless LLMQUEUE_DEBUG is set."""
    try:
        app()
    except BrokenPipeError:
        # The reader (`head`) has gone: nothing is left to say, not even at interpreter exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        raise SystemExit(int(Exit.FAILED)) from None
    except Exception as exc:
        if os.environ.get("LLMQUEUE_DEBUG"):
            raise
        complain(f"unexpected {type(exc).__name__}: {exc} (LLMQUEUE_DEBUG=1 shows where)")
        raise SystemExit(int(Exit.FAILED)) from exc
