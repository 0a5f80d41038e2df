"""Whether an installation works: what `helm test` runs, `python -m llmqueue_operator.check`.

Each Redis connection of the settings is used as the operator would use it, and one replica of the
operator must lead. Says what is wrong, one line each; ends with 1 if something is.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import re
import socket
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

from llmqueue.errors import StoreMisconfigured, StoreUnavailable, UsageError
from llmqueue.store import carries_credentials, connect

_ATTEMPT_SECONDS = 5.0
_PAUSE_SECONDS = 1.0
_LEADING = re.compile(rb"^llmqueue_operator_leading 1(\.0)?$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Finding:
    """`problem` is empty where all is well; `notes` are for people to judge."""

    subject: str
    result: str
    problem: str = ""
    notes: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        first = f"WRONG {self.subject}: {self.problem}" if self.problem else f"ok    {self.result}"
        return [first, *(f"note  {self.subject}: {note}" for note in self.notes)]


async def findings(
    connections: Path, operator: str, *, seconds: float, clock: Callable[[], float] = time.monotonic
) -> AsyncIterator[Finding]:
    """All of them, as they are known. `operator` is the host:port whose addresses are its replicas;
    what is only starting is given `seconds`."""
    until = clock() + seconds
    folders = _folders(connections)
    if not folders:
        yield Finding("Redis", "", f"no connection below {connections}")
    for folder in folders:
        yield await _connection(folder, until, clock)
    yield await _operator(operator, until, clock)


def _folders(connections: Path) -> list[Path]:
    """A mounted Secret's own folders begin with dots."""
    try:
        found = [path for path in connections.iterdir() if path.is_dir()]
    except OSError:
        return []
    return sorted(path for path in found if not path.name.startswith("."))


async def _connection(folder: Path, until: float, clock: Callable[[], float]) -> Finding:
    subject, notes = f"Redis connection {folder.name}", list[str]()
    url = _read(folder / "url")
    if not url:
        return Finding(subject, "", "its Secret has no key 'url', or an empty one")
    while True:
        notes.clear()
        try:
            async with asyncio.timeout(_ATTEMPT_SECONDS):
                store = await connect(url, warn=notes.append)
            await store.close()
        except (StoreUnavailable, TimeoutError) as exc:
            problem = str(exc) or f"Redis does not answer within {_ATTEMPT_SECONDS:.0f} s"
            if clock() >= until:
                return Finding(subject, "", problem)
            await asyncio.sleep(_PAUSE_SECONDS)
            continue
        except (UsageError, StoreMisconfigured) as exc:
            return Finding(subject, "", str(exc))
        return Finding(
            subject, f"{subject} can be used", notes=(*notes, *_workers_notes(folder, url))
        )


def _workers_notes(folder: Path, url: str) -> list[str]:
    if _read(folder / "worker-secret-name"):
        return []
    try:
        if not carries_credentials(_read(folder / "worker-url") or url):
            return []
    except UsageError as exc:
        return [f"worker-url: {exc}"]
    return [
        "its URL has a password, which workers are not given: each LLMQueue has to name a Secret in"
        " spec.redis.workerSecretRef, or this connection's Secret one in worker-secret-name"
    ]


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""


async def _operator(operator: str, until: float, clock: Callable[[], float]) -> Finding:
    while True:
        leading, answered, problem = await asyncio.to_thread(_look, operator)
        if leading:
            return Finding("operator", f"an operator leads; replicas that answer: {answered}")
        if clock() >= until:
            return Finding("operator", "", problem)
        await asyncio.sleep(_PAUSE_SECONDS)


def _look(operator: str) -> tuple[bool, int, str]:
    """Whether a replica leads, how many answered, and what is wrong otherwise."""
    host, _, port = operator.rpartition(":")
    try:
        found = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
    except OSError as exc:
        return False, 0, f"no replica is ready: {host}: {exc.strerror or exc}"
    addresses = sorted({str(each[4][0]) for each in found})
    answers = [page for address in addresses if (page := _metrics(address, int(port)))]
    if not answers:
        return False, 0, f"no replica answers at port {port} of {', '.join(addresses)}"
    leading = any(_LEADING.search(page) for page in answers)
    return leading, len(answers), f"none of {len(answers)} replicas leads: see the operator's log"


def _metrics(address: str, port: int) -> bytes:
    """Never through a proxy, which the environment may name."""
    connection = http.client.HTTPConnection(address, port, timeout=_ATTEMPT_SECONDS)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().read()
    except (OSError, http.client.HTTPException):
        return b""
    finally:
        connection.close()


async def _run(arguments: argparse.Namespace) -> int:
    wrong = 0
    async for each in findings(
        arguments.connections, arguments.operator, seconds=arguments.seconds
    ):
        wrong += bool(each.problem)
        print(*each.lines(), sep="\n", flush=True)
    return 1 if wrong else 0


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="llmqueue_operator.check", description=__doc__)
    parser.add_argument("--operator", required=True, help="host:port of the operator's metrics")
    parser.add_argument("--connections", type=Path, default=Path("/etc/llmqueue/connections"))
    parser.add_argument("--seconds", type=float, default=60.0, help="for what is only starting")
    return asyncio.run(_run(parser.parse_args(words)))


if __name__ == "__main__":
    raise SystemExit(main())
