"""Worker processes on a real server with a provider on a real socket."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from llmqueue.errors import StoreUnavailable
from support.rawprovider import RawProvider
from support.storebench import StoreBench
from support.valkey import ValkeyServer

PAYLOAD = json.dumps(
    {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 5}
).encode()


class WorkerProcess:
    """One `python -m llmqueue_worker`; what it logs is in `log`."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._environment = environment
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed in `end`
        self.process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self.process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "llmqueue_worker",
            env={**os.environ, **self._environment},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=self._log.fileno(),
        )

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.returncode is None

    def send(self, number: signal.Signals) -> float:
        """Send a signal; returns when."""
        assert self.process is not None
        self.process.send_signal(number)
        return time.monotonic()

    async def ended(self, *, seconds: float = 20.0) -> int:
        """Its exit code."""
        assert self.process is not None
        async with asyncio.timeout(seconds):
            return await self.process.wait()

    def log(self) -> list[dict[str, Any]]:
        text = Path(f"/proc/self/fd/{self._log.fileno()}").read_text()
        return [json.loads(line) for line in text.splitlines() if line.startswith("{")]

    def events(self, name: str) -> list[dict[str, Any]]:
        return [line for line in self.log() if line["event"] == name]

    def other_output(self) -> str:
        """Lines that are no log lines: a traceback, say."""
        text = Path(f"/proc/self/fd/{self._log.fileno()}").read_text()
        return "\n".join(line for line in text.splitlines() if not line.startswith("{"))

    async def end(self) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()
        self._log.close()


class WorkerBench:
    """A queue, its provider, and workers that end with the test."""

    def __init__(self, server: ValkeyServer, jobs: StoreBench, provider: RawProvider) -> None:
        self.server, self.jobs, self.provider = server, jobs, provider
        self.workers: list[WorkerProcess] = []

    async def worker(
        self, *, slots: int = 4, started: bool = True, **settings: Any
    ) -> WorkerProcess:
        """Start a worker; `settings` are those of WorkerSettings."""
        values = {
            "redis_url": self.server.url,
            "queue": self.jobs.queue,
            "worker_uid": f"pod-{len(self.workers)}",
            "provider": "openai-compatible",
            "base_url": self.provider.url,
            "slots": slots,
            **settings,
        }
        worker = WorkerProcess({f"LLMQUEUE_{k.upper()}": str(v) for k, v in values.items()})
        self.workers.append(worker)
        await worker.start()
        if started:
            await self.until(lambda: bool(worker.events("started")))
        return worker

    async def enqueue(self, count: int = 1, **fields: Any) -> list[str]:
        return await self.jobs.enqueue(count, payload=PAYLOAD, **fields)

    async def until(
        self, true: Callable[[], bool | Awaitable[bool]], *, seconds: float = 15.0
    ) -> float:
        """Wait until it is true; returns how long that took."""
        started = time.monotonic()
        while True:
            answer = true()
            if answer if isinstance(answer, bool) else await answer:
                return time.monotonic() - started
            if time.monotonic() - started > seconds:
                logs = [w.log()[-5:] for w in self.workers]
                others = [w.other_output()[-2000:] for w in self.workers]
                raise AssertionError(f"did not come true in {seconds} s: {logs} {others}")
            await asyncio.sleep(0.02)

    async def until_states(self, *, seconds: float = 15.0, **states: int) -> float:
        """Until the queue's jobs are in exactly these states."""

        async def reached() -> bool:
            try:
                return await self.jobs.states() == states
            except StoreUnavailable:  # a test that stops the server: our connections are cut too
                return False

        try:
            return await self.until(reached, seconds=seconds)
        except AssertionError as exc:
            raise AssertionError(f"{await self.jobs.states()} instead of {states}: {exc}") from None

    async def until_sent(self, count: int, *, seconds: float = 15.0) -> float:
        """Until the provider has received so many requests."""
        return await self.until(lambda: len(self.provider.received) >= count, seconds=seconds)

    async def attempts(self, job: str) -> list[dict[str, Any]]:
        return (await self.jobs.store.job(job)).attempts

    async def ledger(self) -> list[dict[str, Any]]:
        rows = await self.jobs.redis.xrange(self.jobs.key("ledger"))
        return [{**json.loads(row[b"e"]), "kind": row[b"k"].decode()} for _, row in rows]

    async def close(self) -> None:
        for worker in self.workers:
            await worker.end()


def metric(text: str, name: str, **labels: str) -> float:
    """One sample of a Prometheus exposition."""
    wanted = ",".join(f'{key}="{value}"' for key, value in labels.items())
    sample = f"{name}{{{wanted}}}" if labels else name
    found = re.search(rf"^{re.escape(sample)} (\S+)$", text, re.MULTILINE)
    assert found, f"no {sample} in:\n{text}"
    return float(found[1])
