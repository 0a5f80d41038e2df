"""Commands that read and steer whole queues."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from llmqueue_cli.execution import AsJson, DataFolder, RedisUrl, with_store
from llmqueue_cli.exits import Exit
from llmqueue_cli.rendering import duration, print_json, print_table

if TYPE_CHECKING:
    from llmqueue.store.port import Store

QueueName = Annotated[
    str, typer.Argument(metavar="NAME", help="NAME (namespace `default`) or NAMESPACE/NAME.")
]


def queues(
    as_json: AsJson = False, redis_url: RedisUrl = None, data_dir: DataFolder = None
) -> None:
    """List all queues. With --json one array."""

    async def work(store: Store) -> Exit:
        rows = [await store.queue_status(name) for name in sorted(await store.registry())]
        if as_json:
            print_json(rows)
        else:
            _table(rows)
        return Exit.OK

    with_store(redis_url, data_dir, work)


def _table(rows: list[dict[str, Any]]) -> None:
    print_table(
        ("QUEUE", "READY", "DELAYED", "IN FLIGHT", "DONE", "DEAD", "REVIEW", "WORKERS",
         "BOUND BY", "RPM", "ETA"),
        [
            (
                row["queue"],
                row["states"]["ready"],
                row["states"]["delayed"],
                row["in_flight"],
                row["states"]["succeeded"],
                row["states"]["dead"],
                row["states"]["review"],
                f"{row['workers']['actual']}/{row['workers']['desired']}",
                row["bound_by"] or "–",
                _rate(row["effective_rpm"]),
                duration(row["eta_seconds"]),
            )
            for row in rows
        ],
    )  # fmt: skip


def _rate(effective_rpm: float | None) -> str:
    return "–" if effective_rpm is None else f"{effective_rpm:.0f}"


def queue(
    name: QueueName,
    as_json: AsJson = False,
    redis_url: RedisUrl = None,
    data_dir: DataFolder = None,
) -> None:
    """Show one queue.

    Jobs by state, workers, which limit binds, and when it will be done.
    """

    async def work(store: Store) -> Exit:
        status = await store.queue_status(await _known(store, name))
        if as_json:
            print_json(status)
        else:
            _describe(status)
        return Exit.OK

    with_store(redis_url, data_dir, work)


async def _known(store: Store, name: str) -> str:
    from llmqueue.client import Client  # noqa: PLC0415 - keeps --help fast

    return (await Client(store).entry(name)).config.queue


def _describe(status: dict[str, Any]) -> None:
    counts = ", ".join(f"{count} {state}" for state, count in status["states"].items() if count)
    workers = status["workers"]
    lines: list[tuple[str, object]] = [
        ("Queue", status["queue"]),
        ("Jobs", counts or "none"),
        ("In flight", status["in_flight"]),
        ("Workers", f"{workers['actual']} of {workers['desired']} wanted"),
        ("Bound by", status["bound_by"] or "–"),
        ("Rate", f"{_rate(status['effective_rpm'])} a minute"),
        ("Done in", duration(status["eta_seconds"])),
    ]
    lines += [
        ("Learned", f"{each['effective']} {each['name']}, where {each['declared']} are declared")
        for each in status.get("limits", ())
        if each["effective"] != each["declared"]
    ]
    if status.get("suspended"):
        lines.append(("Suspended", "yes: nothing is handed out until `llmqueue unsuspend`"))
    if status.get("blocked_seconds"):
        lines.append(("Blocked", f"{duration(status['blocked_seconds'])}, as the provider asked"))
    if status.get("breaker", "closed") != "closed":
        lines.append(("Breaker", status["breaker"]))
    lines += [
        ("Paused", f"{pause['kind']}: {pause['message']} (`llmqueue resume` tries now)")
        for pause in status.get("paused", ())
    ]
    for label, value in lines:
        print(f"{label + ':':11} {value}")


def tenants(
    name: QueueName,
    limit: Annotated[int, typer.Option(help="Show so many at most.", min=1, max=1000)] = 20,
    as_json: AsJson = False,
    redis_url: RedisUrl = None,
    data_dir: DataFolder = None,
) -> None:
    """Show which tenants of a queue wait, and which are at a limit of their own.

    Those with most waiting jobs come first. With --json one array.
    """

    async def work(store: Store) -> Exit:
        rows = await store.tenants(await _known(store, name), limit=limit)
        if as_json:
            print_json([asdict(row) for row in rows])
        else:
            print_table(
                ("TENANT", "WAITING", "IN FLIGHT", "AT ITS LIMIT"),
                [
                    (
                        row.tenant or "–",
                        row.waiting,
                        row.in_flight,
                        f"≤ {duration(row.parked_seconds)}" if row.parked_seconds else "–",
                    )
                    for row in rows
                ],
            )
        return Exit.OK

    with_store(redis_url, data_dir, work)


def _steer(
    name: str,
    redis_url: str | None,
    data_dir: Any,
    act: Callable[[Store, str], Awaitable[str]],
) -> None:
    async def work(store: Store) -> Exit:
        known = await _known(store, name)
        print(f"{known} {await act(store, known)}")
        return Exit.OK

    with_store(redis_url, data_dir, work)


def suspend(name: QueueName, redis_url: RedisUrl = None, data_dir: DataFolder = None) -> None:
    """Hand out nothing more of a queue; running calls finish."""

    async def act(store: Store, queue_name: str) -> str:
        await store.set_suspended(queue_name, True)
        return "suspended"

    _steer(name, redis_url, data_dir, act)


def unsuspend(name: QueueName, redis_url: RedisUrl = None, data_dir: DataFolder = None) -> None:
    """Let a suspended queue go on."""

    async def act(store: Store, queue_name: str) -> str:
        await store.set_suspended(queue_name, False)
        return "unsuspended"

    _steer(name, redis_url, data_dir, act)


def resume(name: QueueName, redis_url: RedisUrl = None, data_dir: DataFolder = None) -> None:
    """Try a paused account or an open breaker now.

    An account is paused when its quota is used up or its key is refused.
    """

    async def act(store: Store, queue_name: str) -> str:
        lifted = await store.resume(queue_name)
        return f"resumed: {lifted} lifted" if lifted else "had nothing to resume"

    _steer(name, redis_url, data_dir, act)
