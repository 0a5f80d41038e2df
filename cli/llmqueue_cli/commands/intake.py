"""The command that submits jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from llmqueue_cli.execution import DataFolder, RedisUrl, with_store
from llmqueue_cli.exits import Exit

if TYPE_CHECKING:
    from llmqueue.store.port import Store


def enqueue(
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="NAME or NAMESPACE/NAME.")],
    file: Annotated[
        str,
        typer.Option("--file", "-f", metavar="JSONL", help="Jobs, one object a line; - = stdin."),
    ],
    wait: Annotated[
        bool,
        typer.Option("--wait", help="Return when all have ended; exit 1 unless all succeeded."),
    ] = False,
    redis_url: RedisUrl = None,
    data_dir: DataFolder = None,
) -> None:
    """Enqueue jobs from a file and print their ids.

    Ids come one a line, in the file's order.

    Each line is a JSON object: `payload` (the provider's request), and optionally `priority`
    (1–10, 10 most urgent, default 5), `tenant`, `feature`, `idempotency_key`, `delay_seconds`,
    `deadline_seconds`, `timeout_seconds`, `max_attempts`. A bad line is named, and nothing is
    stored.
    """

    async def work(store: Store) -> Exit:
        from llmqueue_cli.intake import enqueue_file, wait_and_tell  # noqa: PLC0415 - keeps --help fast

        ids = await enqueue_file(store, queue, file)
        return await wait_and_tell(store, ids) if wait else Exit.OK

    with_store(redis_url, data_dir, work)
