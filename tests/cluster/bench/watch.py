"""Waiting for something, and what the API server's watch showed of an object."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from cluster.bench.kube import Kube
from llmqueue.errors import StoreUnavailable

T = TypeVar("T")


async def until(
    what: str,
    look: Callable[[], Awaitable[T]],
    *,
    seconds: float,
    every: float = 0.25,
) -> T:
    """The first true answer of `look`. Fails with the last one."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            found: T | StoreUnavailable = await look()
        except StoreUnavailable as exc:  # the test took it away, or its connection is from before
            found = exc
        if found and not isinstance(found, StoreUnavailable):
            return found
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}; last: {found!r}"
        await asyncio.sleep(every)


@dataclass
class Watch:
    """All versions of objects that the server sent, each with the time of its arrival."""

    seen: list[tuple[float, str, dict[str, Any]]] = field(default_factory=list)

    def values(self, *path: str) -> list[Any]:
        """A field's values in order, without repeats in a row."""
        found: list[Any] = []
        for _, _, each in self.seen:
            value: Any = each
            for name in path:
                value = (value or {}).get(name)
            if not found or found[-1] != value:
                found.append(value)
        return found

    def first(self, wanted: Callable[[dict[str, Any]], bool], *, after: float = 0.0) -> float:
        """When the first object that is as wanted arrived, by the monotonic clock."""
        for at, _, each in self.seen:
            if at >= after and wanted(each):
                return at
        raise AssertionError("the watch never showed it")


@asynccontextmanager
async def watching(kube: Kube, path: str, *, labels: str = "") -> AsyncIterator[Watch]:
    """Record every event of a watch while the block runs."""
    watch = Watch()
    selector = f"&labelSelector={labels}" if labels else ""
    process = await asyncio.create_subprocess_exec(
        str(kube.kubectl),
        f"--kubeconfig={kube.kubeconfig}",
        "get",
        f"--raw={path}?watch=true{selector}",
        stdout=asyncio.subprocess.PIPE,
        limit=2**24,
    )

    async def read() -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            event = json.loads(line)
            watch.seen.append((time.monotonic(), event["type"], event["object"]))

    reading = asyncio.create_task(read())
    try:
        await asyncio.sleep(0.3)  # the initial events
        yield watch
    finally:
        process.terminate()
        await process.wait()
        await asyncio.gather(reading, return_exceptions=True)
