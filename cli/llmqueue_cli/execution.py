"""Running a command: its event loop, its store, and errors as one sentence and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from llmqueue.errors import LlmqueueError
from llmqueue_cli.datadir import DATA_DIR_VARIABLE, REDIS_URL_VARIABLE, store_url
from llmqueue_cli.exits import Exit, exit_of, sentence

if TYPE_CHECKING:
    from llmqueue.store.port import Store

RedisUrl = Annotated[
    str | None,
    typer.Option(
        "--redis-url",
        envvar=REDIS_URL_VARIABLE,
        metavar="URL",
        help="The store; without it that of the `llmqueue up` on the data folder.",
    ),
]
DataFolder = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        envvar=DATA_DIR_VARIABLE,
        metavar="DIR",
        help="Data folder of `llmqueue up`.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def complain(text: str) -> None:
    """Say on stderr what went wrong."""
    print(f"llmqueue: {text}", file=sys.stderr)


def run(work: Callable[[], Awaitable[Exit]]) -> None:
    """Run a command's coroutine to its exit code; errors of ours become one sentence."""

    import asyncio  # noqa: PLC0415 - keeps --help fast

    async def main() -> Exit:
        return await work()

    try:
        code = asyncio.run(main())
    except LlmqueueError as exc:
        complain(sentence(exc))
        code = exit_of(exc)
    except KeyboardInterrupt:
        code = Exit.INTERRUPTED
    raise typer.Exit(int(code))


def with_store(
    redis_url: str | None, data_dir: Path | None, work: Callable[[Store], Awaitable[Exit]]
) -> None:
    """Run `work` on the store that the options name."""

    async def connected() -> Exit:
        from llmqueue.store import connect  # noqa: PLC0415 - keeps --help fast

        store = await connect(store_url(redis_url, data_dir))
        try:
            return await work(store)
        finally:
            await store.close()

    run(connected)
