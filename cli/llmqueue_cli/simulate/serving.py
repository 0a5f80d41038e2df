"""The simulated provider as a process."""

from __future__ import annotations

import asyncio
import json
import signal

from llmqueue_cli.simulate.options import ProviderOptions
from llmqueue_cli.simulate.provider import FakeProvider


async def serve(options: ProviderOptions, *, as_json: bool = False) -> None:
    """Serve until SIGTERM or SIGINT. Prints the URL as its first line, the counts as its last.

    OSError where the port is taken.
    """
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, stopped.set)
    async with FakeProvider(options) as fake:
        print(fake.url, flush=True)
        await stopped.wait()
        stats = fake.stats()
    print(json.dumps(stats, indent=None if as_json else 2), flush=True)
