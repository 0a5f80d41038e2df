"""The command that submits jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from llmqueue_cli.execution import DataFolder, RedisUrl, with_store
from llmqueue_cli.exits import Exit

if TYPE_CHECKING:
    from llmqueue.store.port import Store

IN_BATCH = "Batch"


def enqueue(
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="NAME or NAMESPACE/NAME.")],
    file: Annotated[
        str | None,
        typer.Option("--file", "-f", metavar="JSONL", help="Jobs, one object a line; - = stdin."),
    ] = None,
    handler: Annotated[
        str | None,
        typer.Option("--handler", metavar="NAME", help="Instead of a file: one call of a handler."),
    ] = None,
    args: Annotated[
        str, typer.Option("--args", metavar="JSON", help="Its arguments by name, an object.")
    ] = "{}",
    wait: Annotated[
        bool,
        typer.Option("--wait", help="Return when all have ended; exit 1 unless all succeeded."),
    ] = False,
    batch: Annotated[
        bool,
        typer.Option("--batch", help="Count the file's jobs together.", rich_help_panel=IN_BATCH),
    ] = False,
    name: Annotated[
        str, typer.Option("--name", help="What people call it.", rich_help_panel=IN_BATCH)
    ] = "",
    allowed_failures: Annotated[
        int,
        typer.Option(
            "--allowed-failures", min=-1, help="-1 = any number.", rich_help_panel=IN_BATCH
        ),
    ] = 0,
    then: Annotated[
        str | None,
        typer.Option(
            "--then", metavar="JOB", help="A job line: if not too many failed.",
            rich_help_panel=IN_BATCH,
        ),
    ] = None,
    catch: Annotated[
        str | None,
        typer.Option(
            "--catch", metavar="JOB", help="A job line: once too many have failed.",
            rich_help_panel=IN_BATCH,
        ),
    ] = None,
    finally_: Annotated[
        str | None,
        typer.Option(
            "--finally", metavar="JOB", help="A job line: when all have ended.",
            rich_help_panel=IN_BATCH,
        ),
    ] = None,
    batch_id: Annotated[
        str | None,
        typer.Option(
            "--batch-id", metavar="ID", help="Go on with a batch whose enqueueing broke off.",
            rich_help_panel=IN_BATCH,
        ),
    ] = None,
    redis_url: RedisUrl = None,
    data_dir: DataFolder = None,
) -> None:  # fmt: skip
    """Enqueue jobs from a file and print their ids.

    Ids come one a line, in the file's order; of a batch only its own id.

    Each line is a JSON object: `payload` (the provider's request) or `handler` and `args`, and
    optionally `priority` (1–10, 10 most urgent, default 5), `tenant`, `feature`,
    `idempotency_key`, `delay_seconds` or `not_before`, `deadline_seconds`, `timeout_seconds`,
    `max_attempts`, `backoff_seconds`, `estimated_input_tokens`, `estimated_output_tokens`,
    `correlation_id`. A bad line is named, and nothing is stored.
    """
    if (file is None) == (handler is None):
        raise typer.BadParameter("give either --file or --handler")
    followers = {"then": then, "catch": catch, "finally": finally_}
    given = {option: text for option, text in followers.items() if text is not None}
    if not batch and (given or name or allowed_failures or batch_id):
        raise typer.BadParameter("--then, --name and the like are about a batch: add --batch")

    async def work(store: Store) -> Exit:
        from llmqueue_cli import intake  # noqa: PLC0415 - keeps --help fast

        lines = await intake.lines_of(file) if file else [intake.handler_line(handler or "", args)]
        failures = None if allowed_failures < 0 else allowed_failures
        plan = intake.BatchPlan(failures, name, batch_id, given) if batch else None
        ids = await intake.enqueue_lines(store, queue, lines, plan)
        return await intake.wait_and_tell(store, ids) if wait else Exit.OK

    with_store(redis_url, data_dir, work)
