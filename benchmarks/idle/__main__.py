"""`python -m benchmarks.idle`: CPU and memory of an idle worker process over half a minute."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.machine import facts, sentence
from benchmarks.processes import cpu_seconds, end_session, end_tidily, require_linux, rss_bytes
from benchmarks.server import Server
from benchmarks.tables import table
from llmqueue.config import BudgetConfig, Limit, QueueConfig
from llmqueue.states import LimitUnit, ProviderType
from llmqueue.store import connect

HERE = Path(__file__).parent
QUEUE = "bench/idle"
START_SECONDS = 60.0
"""How long its start may take: it is over when a look of LOOK_SECONDS shows little CPU."""
LOOK_SECONDS = 3.0
STARTED_CPU_SECONDS = 0.15
CPU_BOUND_PERCENT = 1.0


async def _configure(url: str) -> None:
    store = await connect(url)
    limits = (Limit(LimitUnit.REQUESTS, 600), Limit(LimitUnit.TOKENS, 100_000))
    await store.configure(
        BudgetConfig(QUEUE, limits), [QueueConfig(QUEUE, QUEUE, ProviderType.OPENAI)]
    )
    await store.close()


def _environment(url: str) -> dict[str, str]:
    return {
        **os.environ,
        "LLMQUEUE_REDIS_URL": url,
        "LLMQUEUE_QUEUE": QUEUE,
        "LLMQUEUE_WORKER_UID": "idle",
        "LLMQUEUE_PROVIDER": "openai",
        "LLMQUEUE_BASE_URL": "http://127.0.0.1:9",
        "LLMQUEUE_HEALTH_PORT": "0",
        "LLMQUEUE_LOG_LEVEL": "warning",
    }


def _started(pid: int) -> None:
    """Wait until imports and the like are done, or START_SECONDS are over."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        before = cpu_seconds(pid)
        time.sleep(LOOK_SECONDS)
        if before and cpu_seconds(pid) - before < STARTED_CPU_SECONDS:
            return


def measure(seconds: float) -> dict[str, float]:
    """The real worker process with health server. Raises RuntimeError where it ended early."""
    with Server() as server:
        asyncio.run(_configure(server.url))
        worker = subprocess.Popen(
            [sys.executable, "-m", "llmqueue_worker"],
            env=_environment(server.url),
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            _started(worker.pid)
            before, valkey, began = (
                cpu_seconds(worker.pid),
                cpu_seconds(server.pid),
                time.monotonic(),
            )
            time.sleep(seconds)
            if worker.poll() is not None:
                raise RuntimeError(f"the worker ended with {worker.returncode}")
            passed = time.monotonic() - began
            return {
                "seconds": passed,
                "worker_cpu_percent": 100 * (cpu_seconds(worker.pid) - before) / passed,
                "valkey_cpu_percent": 100 * (cpu_seconds(server.pid) - valkey) / passed,
                "worker_rss_mib": rss_bytes(worker.pid) / 2**20,
            }
        finally:
            end_session(worker.pid)
            worker.wait()


def markdown(results: dict[str, Any]) -> str:
    """The page."""
    found = results["idle"]
    return (
        "\n\n".join(
            [
                "# An idle worker",
                "Written by `python -m benchmarks.idle`.",
                table(
                    ["worker CPU %", "its resident memory MiB", "its Valkey CPU %", "over s"],
                    [
                        [
                            f"{found['worker_cpu_percent']:.2f}",
                            f"{found['worker_rss_mib']:.0f}",
                            f"{found['valkey_cpu_percent']:.2f}",
                            f"{found['seconds']:.0f}",
                        ]
                    ],
                ),
                "The worker process as it is started, with its health server; bound:"
                f" {CPU_BOUND_PERCENT:g} % of one core. A Valkey without any client takes part of"
                " its CPU for its own timers.",
                f"{sentence(results['machine'])}.",
            ]
        )
        + "\n"
    )


def main() -> None:
    require_linux()
    end_tidily()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.idle", description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0, help="measure so long (30)")
    parser.add_argument("--out", type=Path, default=HERE, help="folder of results.md, results.json")
    arguments = parser.parse_args()
    results = {"machine": facts(), "idle": measure(arguments.seconds)}
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    page = markdown(results)
    (arguments.out / "results.md").write_text(page)
    print(page)


if __name__ == "__main__":
    main()
