"""Commands that run llmqueue on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from llmqueue_cli.datadir import REDIS_URL_VARIABLE, default_folder
from llmqueue_cli.execution import DataFolder, run
from llmqueue_cli.exits import Exit

OwnRedis = Annotated[
    str | None,
    typer.Option(
        "--redis-url",
        envvar=REDIS_URL_VARIABLE,
        metavar="URL",
        help="Use this Redis or Valkey; without it an embedded one runs in the data folder.",
    ),
]
LogsAsJson = Annotated[bool, typer.Option("--json", help="Log lines as JSON.")]


def up(
    files: Annotated[
        list[Path],
        typer.Option("--file", "-f", metavar="FILE", help="LLMQueue manifests; may be repeated."),
    ],
    redis_url: OwnRedis = None,
    data_dir: DataFolder = None,
    until_idle: Annotated[
        bool, typer.Option("--until-idle", help="End when no job is left to do.")
    ] = False,
    credentials_file: Annotated[
        Path | None,
        typer.Option(
            "--credentials-file",
            metavar="FILE",
            help="Lines NAME=KEY, by name of the credentialsSecretRef or of the usual variable.",
        ),
    ] = None,
    as_json: LogsAsJson = False,
) -> None:
    """Run LLMQueues on this machine.

    It starts a store where none is named, and workers as limits and jobs ask for.

    Keys come from OPENAI_API_KEY, ANTHROPIC_API_KEY, LLMQUEUE_CREDENTIAL_NAME with the NAME of
    the credentialsSecretRef, or --credentials-file.

    Changed files are read again, also on SIGHUP. SIGTERM or Ctrl-C: running calls finish, then
    everything ends with exit code 0.
    """

    async def work() -> Exit:
        from llmqueue_cli.local.up import UpOptions, up  # noqa: PLC0415 - keeps --help fast

        return await up(
            UpOptions(
                files=tuple(files),
                redis_url=redis_url,
                data_dir=data_dir or default_folder(),
                until_idle=until_idle,
                credentials_file=credentials_file,
                json_logs=as_json,
            )
        )

    run(work)


def demo(
    as_json: Annotated[bool, typer.Option("--json", help="End with the figures on one line.")] = (
        False
    ),
) -> None:
    """Show it all in two minutes on simulated providers.

    Two queues, a burst, injected failures, workers that come and go, and a report.
    """

    async def work() -> Exit:
        from llmqueue_cli.local.demo.stage import demo  # noqa: PLC0415 - keeps --help fast

        return await demo(as_json=as_json)

    run(work)
