"""Commands that read and decide single jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from llmqueue.states import JobState
from llmqueue_cli.execution import AsJson, DataFolder, RedisUrl, complain, with_store
from llmqueue_cli.exits import Exit, exit_of, sentence
from llmqueue_cli.rendering import (
    clock,
    content,
    duration,
    job_record,
    job_row,
    print_json,
    print_table,
    usd,
)

if TYPE_CHECKING:
    from llmqueue.job import JobView
    from llmqueue.store.port import Store

JobId = Annotated[str, typer.Argument(metavar="ID", help="Job id, as `enqueue` printed it.")]
Count = Annotated[int, typer.Option("--limit", min=1, max=10_000, help="At most this many.")]


def jobs(
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="NAME or NAMESPACE/NAME.")],
    state: Annotated[
        list[JobState] | None, typer.Option("--state", help="Only these; may be repeated.")
    ] = None,
    limit: Count = 50,
    as_json: AsJson = False,
    redis_url: RedisUrl = None,
    data_dir: DataFolder = None,
) -> None:
    """List a queue's jobs.

    Oldest first within each state. With --json one array.
    """

    async def work(store: Store) -> Exit:
        from llmqueue.client import Client, queue_id  # noqa: PLC0415 - keeps --help fast

        await Client(store).entry(queue)
        found: list[JobView] = []
        for wanted in state or JobState:
            if len(found) < limit:
                found += await store.jobs(queue_id(queue), wanted, limit=limit - len(found))
        show_jobs(found, as_json=as_json)
        return Exit.OK

    with_store(redis_url, data_dir, work)


def show_jobs(found: list[JobView], *, as_json: bool) -> None:
    """A list of jobs, a JSON array or a table."""
    if as_json:
        print_json([job_row(one) for one in found])
        return
    print_table(
        ("ID", "STATE", "PRIORITY", "MODEL", "TENANT", "FEATURE", "ATTEMPTS", "COST", "CREATED"),
        [
            (
                one.id,
                one.state,
                one.priority,
                one.model,
                one.tenant or "–",
                one.feature or "–",
                one.attempts_used,
                usd(one.cost_nano_usd) or "–",
                clock(one.created_at),
            )
            for one in found
        ],
    )


def job(
    job_id: JobId,
    as_json: AsJson = False,
    redis_url: RedisUrl = None,
    data_dir: DataFolder = None,
) -> None:
    """Show one job: state, attempts, result or error, cost."""

    async def work(store: Store) -> Exit:
        found = await store.job(job_id)
        if as_json:
            print_json(job_record(found))
        else:
            _describe(found)
        return Exit.OK

    with_store(redis_url, data_dir, work)


def _describe(found: JobView) -> None:
    lines: list[tuple[str, object]] = [
        ("Job", found.id),
        ("Queue", found.queue),
        ("State", found.state),
        ("Model", found.model or "–"),
        ("Priority", found.priority),
        ("Created", clock(found.created_at)),
        ("Finished", clock(found.finished_at)),
        ("Cost", f"${usd(found.cost_nano_usd)}" if found.cost_nano_usd is not None else "unknown"),
    ]
    if found.possible_duplicate:
        lines.append(("Note", "may have been paid twice: an earlier call's outcome is unknown"))
    if found.handler:
        lines.insert(3, ("Handler", found.handler))
    if found.batch:
        lines.append(("Batch", found.batch))
    if found.progress:
        words = f"{found.progress.fraction:.0%} {found.progress.message}"
        lines.append(("Progress", f"{words.strip()} ({clock(found.progress.at)})"))
    if found.error:
        lines.append(("Error", found.error.get("message") or found.error.get("reason") or "–"))
    for name, value in lines:
        print(f"{name + ':':10} {value}")
    for number, attempt in enumerate(found.attempts, start=1):
        print(f"Attempt {number}: {_attempt_words(attempt)}")
    if found.result is not None:
        print(f"Result:\n{_pretty(found.result)}")


def _attempt_words(attempt: dict[str, Any]) -> str:
    words = [str(attempt.get("class") or "running")]
    if attempt.get("status"):
        words.append(f"status {attempt['status']}")
    if attempt.get("message"):
        words.append(str(attempt["message"]))
    if attempt.get("nano_usd") is not None:
        words.append(f"${usd(attempt['nano_usd'])}")
    return ", ".join(words)


def _pretty(raw: bytes) -> str:
    import json  # noqa: PLC0415 - only here

    value = content(raw)
    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)


def why(
    job_id: JobId,
    as_json: AsJson = False,
    redis_url: RedisUrl = None,
    data_dir: DataFolder = None,
) -> None:
    """Say why a job is where it is.

    Which limit binds, until when, and its position.
    """

    async def work(store: Store) -> Exit:
        answer = await store.explain(job_id)
        if as_json:
            print_json(answer)
        else:
            print(_explanation(answer))
        return Exit.OK

    with_store(redis_url, data_dir, work)


def _explanation(answer: dict[str, Any]) -> str:
    words = f"Job {answer['id']} is {answer['state']}"
    if answer.get("reason"):
        words += f": {answer['reason']}"
    if answer.get("position") is not None:
        words += f"; number {answer['position']} in its lane"
    if answer.get("limit"):
        words += f"; the queue is bound by {answer['limit']}"
    if answer.get("wait_seconds") is not None:
        words += f"; about {duration(answer['wait_seconds'])} to go"
    return words + "."


def cancel(
    job_ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Job ids.")],
    redis_url: RedisUrl = None,
    data_dir: DataFolder = None,
) -> None:
    """Cancel jobs.

    Unsent ones end at once, a running call within a heartbeat.
    Prints `ID STATE` for each; `sent` means that the worker was told to stop the call.
    """

    async def work(store: Store) -> Exit:
        from llmqueue.errors import UsageError  # noqa: PLC0415 - beside its one use

        code = Exit.OK
        for job_id in job_ids:
            try:
                print(job_id, await store.cancel(job_id), flush=True)
            except UsageError as exc:
                complain(sentence(exc))
                code = exit_of(exc)
        return code

    with_store(redis_url, data_dir, work)


review = typer.Typer(no_args_is_help=True, help="Jobs whose outcome is unknown.")


@review.command("list")
def review_list(
    queue: Annotated[str | None, typer.Argument(metavar="[QUEUE]", help="All queues without.")] = (
        None
    ),
    limit: Count = 50,
    as_json: AsJson = False,
    redis_url: RedisUrl = None,
    data_dir: DataFolder = None,
) -> None:
    """List jobs that wait for a decision because their call may have been billed."""

    async def work(store: Store) -> Exit:
        from llmqueue.client import Client, queue_id  # noqa: PLC0415 - keeps --help fast

        if queue is not None:
            await Client(store).entry(queue)
        names = [queue_id(queue)] if queue is not None else sorted(await store.registry())
        found: list[JobView] = []
        for name in names:
            if len(found) < limit:
                found += await store.jobs(name, JobState.REVIEW, limit=limit - len(found))
        _show_review(found, as_json=as_json)
        return Exit.OK

    with_store(redis_url, data_dir, work)


def _show_review(found: list[JobView], *, as_json: bool) -> None:
    if as_json:
        show_jobs(found, as_json=True)
        return
    print_table(
        ("ID", "QUEUE", "MODEL", "ATTEMPTS", "WHY", "CREATED"),
        [
            (
                one.id,
                one.queue,
                one.model,
                one.attempts_used,
                (one.error or {}).get("message") or "its outcome is unknown",
                clock(one.created_at),
            )
            for one in found
        ],
    )
