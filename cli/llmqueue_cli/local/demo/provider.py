"""A simulated provider in a process of its own, and what it counted."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import deque
from dataclasses import dataclass
from typing import Any

import httpx2

from llmqueue.errors import LlmqueueError
from llmqueue.states import ProviderType
from llmqueue_cli.local.parentage import end_with_parent

_START_SECONDS, _STOP_SECONDS, _ANSWER_SECONDS = 20.0, 5.0, 5.0
_MINUTE = 60.0
CALL_SECONDS = "lognormal:2,0.25"


@dataclass(frozen=True, slots=True)
class Counts:
    """What a provider counted until now; `recent` = calls within the last minute."""

    calls: int = 0
    recent: int = 0
    answered_429: int = 0
    injected_429: int = 0
    injected_529: int = 0
    worst_60s: int = 0
    billed_twice: int = 0
    first_start: float | None = None
    """Unix seconds."""


class DemoProvider:
    """One `llmqueue fake-provider` on a free port, with calls of about two seconds."""

    def __init__(self, kind: ProviderType, limit: int) -> None:
        self._kind = kind
        self._limit = limit
        self._process: Process | None = None
        self._client: httpx2.AsyncClient | None = None
        self._root = ""
        self._seen: deque[tuple[float, int]] = deque([(0.0, 0)])

    @property
    def base_url(self) -> str:
        """As `spec.provider.baseURL` wants it."""
        return f"{self._root}/v1" if self._kind is ProviderType.OPENAI else self._root

    async def start(self) -> None:
        """Start it and wait for its address. Raises LlmqueueError."""
        # A session of its own: Ctrl-C is for the demo, whose workers still need their provider.
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "llmqueue_cli.simulate",
            *("--shape", str(self._kind), "--rpm", str(self._limit), "--latency", CALL_SECONDS),
            *("--port", "0"),
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=DEVNULL,
            start_new_session=True,
            preexec_fn=end_with_parent(signal.SIGTERM),
        )
        self._root = await self._address(self._process)
        self._client = httpx2.AsyncClient(base_url=self._root, timeout=_ANSWER_SECONDS)

    async def _address(self, process: Process) -> str:
        """Its first line."""
        line = b""
        if process.stdout is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_START_SECONDS):
                    line = await process.stdout.readline()
        if not line.startswith(b"http"):
            raise LlmqueueError("the simulated provider did not start")
        return line.decode().strip()

    async def counts(self) -> Counts:
        """All counts; called often enough, `recent` is exact to a look."""
        stats = await self._ask("GET", "stats")
        now = time.monotonic()
        self._seen.append((now, stats["calls"]))
        while len(self._seen) > 1 and self._seen[1][0] <= now - _MINUTE:
            self._seen.popleft()
        return Counts(
            calls=stats["calls"],
            recent=stats["calls"] - self._seen[0][1],
            answered_429=stats["answered_429"],
            injected_429=stats["injected_429"],
            injected_529=stats["injected_529"],
            worst_60s=stats["worst_60s"],
            billed_twice=stats["billed_twice"],
            first_start=stats["first_start"],
        )

    async def started_within(self, seconds: float) -> int:
        """Calls that began within this time of the first one."""
        starts = [call["start"] for call in await self._ask("GET", "calls")]
        return sum(start < starts[0] + seconds for start in starts)

    async def misbehave(self, fault: str, *, seconds: float, retry_after_seconds: int) -> None:
        """Answer every call with a fault from now on for a while."""
        rule = {"fault": fault, "to_s": seconds, "retry_after": str(retry_after_seconds)}
        await self._ask("POST", "faults", [rule])

    async def _ask(self, method: str, what: str, document: Any = None) -> Any:
        assert self._client is not None, "the provider was not started"  # noqa: S101
        answer = await self._client.request(method, f"/_sim/{what}", json=document)
        answer.raise_for_status()
        return answer.json()

    async def stop(self) -> None:
        if self._client is not None:
            await self._client.aclose()
        if self._process is None or self._process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
