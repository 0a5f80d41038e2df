"""Commands that read and cancel batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from llmqueue_cli.commands.jobs import Count
from llmqueue_cli.execution import AsJson, DataFolder, RedisUrl, with_store
from llmqueue_cli.exits import Exit
from llmqueue_cli.rendering import batch_record, clock, print_json, print_table

if TYPE_CHECKING:
    from llmqueue.batch import BatchView
    from llmqueue.store.port import Store


def batches(
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="NAME or NAMESPACE/NAME.")],
    limit: Count = 50,
    as_json: AsJson = False,
    redis_url: RedisUrl = None,
    data_dir: DataFolder = None,
) -> None:
    """List a queue's batches that have not ended.

    Oldest first. One that stays `open` has a producer that broke off: go on with it
    (`enqueue --batch-id`), or cancel it.
    """

    async def work(store: Store) -> Exit:
        from llmqueue.client import Client  # noqa: PLC0415 - keeps --help fast

        entry = await Client(store).entry(queue)
        found = await store.batches(entry.config.queue, limit=limit)
        if as_json:
            print_json([batch_record(one) for one in found])
        else:
            print_table(
                ("ID", "NAME", "STATE", "TOTAL", "PENDING", "FAILED", "CREATED"),
                [
                    (
                        one.id,
                        one.name or "–",
                        one.state,
                        one.total,
                        one.pending,
                        one.failed,
                        clock(one.created_at),
                    )
                    for one in found
                ],
            )
        return Exit.OK

    with_store(redis_url, data_dir, work)


def batch(
    batch_id: Annotated[
        str, typer.Argument(metavar="ID", help="Batch id, as `enqueue --batch` printed it.")
    ],
    jobs: Annotated[bool, typer.Option("--jobs", help="Print its job ids, one a line.")] = False,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="First cancel all its jobs that have not ended.")
    ] = False,
    as_json: AsJson = False,
    redis_url: RedisUrl = None,
    data_dir: DataFolder = None,
) -> None:
    """Show one batch: its state and how many of its jobs have ended."""

    async def work(store: Store) -> Exit:
        from llmqueue.client import Client  # noqa: PLC0415 - keeps --help fast

        handle = Client(store).batch_handle(batch_id)
        view = await handle.cancel() if cancel else await handle.progress()
        if jobs:
            async for job_id in handle.job_ids():
                print(job_id)
        elif as_json:
            print_json(batch_record(view))
        else:
            _describe(view)
        return Exit.OK

    with_store(redis_url, data_dir, work)


def _describe(view: BatchView) -> None:
    allowed = "any" if view.allowed_failures is None else view.allowed_failures
    state = f"{view.state}, cancelled" if view.cancelled else view.state
    if view.state == "open":
        state += ": its producer has not said that it is complete"
    lines: list[tuple[str, object]] = [
        ("Batch", view.id),
        ("Name", view.name or "–"),
        ("Queue", view.queue),
        ("State", state),
        ("Jobs", f"{view.total}: {view.pending} pending, {view.succeeded} succeeded,"
                 f" {view.failed} failed ({allowed} allowed)"),
        ("Created", clock(view.created_at)),
        ("Finished", clock(view.finished_at)),
    ]  # fmt: skip
    for name, value in lines:
        print(f"{name + ':':10} {value}")
