"""The simulated provider as a process of its own, so that its event loop is not the test's."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import httpx2

_START_SECONDS = 20.0
_STOP_SECONDS = 10.0
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


def _die_with_parent() -> None:
    if sys.platform == "linux":
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class ProviderControl:
    """What a test asks a simulated provider; `url` is its address without a path."""

    def __init__(self, url: str = "") -> None:
        self.url = url
        self._client = httpx2.AsyncClient(timeout=10, trust_env=False)

    async def close(self) -> None:
        await self._client.aclose()

    async def _ask(self, method: str, what: str, document: Any = None) -> Any:
        # A connection each: none must be left that the provider may drop while it refuses.
        headers = {"connection": "close"}
        url = f"{self.url}/_sim/{what}"
        response = await self._client.request(method, url, json=document, headers=headers)
        assert response.status_code == 200, response.text
        return response.json()

    async def stats(self) -> dict[str, Any]:
        """All counts so far."""
        found: dict[str, Any] = await self._ask("GET", "stats")
        return found

    async def calls(self, *, since: int = 0) -> list[dict[str, Any]]:
        """The log of calls from number `since` on."""
        found: list[dict[str, Any]] = await self._ask("GET", f"calls?since={since}")
        return found

    async def billed(self) -> dict[str, int]:
        """How often each job was billed."""
        found: dict[str, int] = await self._ask("GET", "billed")
        return found

    async def faults(self, rules: Sequence[Mapping[str, Any]] | Mapping[str, Any]) -> None:
        """Replace the script; its times count from now. [] ends it."""
        await self._ask("POST", "faults", rules)

    async def limits(self, **limits: int | None) -> None:
        """Change `rpm`, `tpm`, `itpm`, `otpm`; None = unlimited."""
        await self._ask("POST", "limits", limits)

    async def reset(self) -> None:
        """Forget all counts."""
        await self._ask("POST", "reset", {})


class FakeProviderProcess(ProviderControl):
    """`async with FakeProviderProcess(shape="openai", rpm=60, latency="0.5") as fake: … fake.url`.

    Options are those of `llmqueue fake-provider` with underscores; True stands for a flag, None
    leaves an option out, a list or dict as `script` is written as JSON. A killed test process takes
    the provider with it.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self._options = options
        self._process: subprocess.Popen[str] | None = None
        self.final_stats: dict[str, Any] = {}
        """What it printed at its end, after stop()."""

    @property
    def pid(self) -> int:
        assert self._process is not None, "the provider is not running"
        return self._process.pid

    async def start(self) -> None:
        """Start and wait until it listens."""
        self._process = self._spawn()
        assert self._process.stdout is not None
        async with asyncio.timeout(_START_SECONDS):
            line = await asyncio.to_thread(self._process.stdout.readline)
        self.url = line.strip()
        assert self.url.startswith("http://"), f"no URL but {line!r}"
        script = self._options.get("script")
        if isinstance(script, (list, tuple, dict)):
            await self.faults(script)

    def _spawn(self) -> subprocess.Popen[str]:
        script = self._options.get("script")
        command = [sys.executable, "-m", "llmqueue_cli.simulate", "--json"]
        command += arguments({k: v for k, v in self._options.items() if k != "script"})
        if isinstance(script, (str, Path)):
            command += ["--script", str(script)]
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=_die_with_parent,  # noqa: PLW1509 - only one prctl call
        )

    async def stop(self) -> dict[str, Any]:
        """SIGTERM; returns the counts that it printed at its end."""
        process, self._process = self._process, None
        if process is None:
            return self.final_stats
        process.terminate()
        try:
            output, _ = await asyncio.to_thread(process.communicate, timeout=_STOP_SECONDS)
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.wait()
        self.final_stats = json.loads(output.strip().splitlines()[-1])
        return self.final_stats

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            assert process.stdout is not None
            process.stdout.close()
            process.wait()


def arguments(options: Mapping[str, Any]) -> list[str]:
    """Options as a command line."""
    found: list[str] = []
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        if value is True:
            found.append(option)
        elif value is not None and value is not False:
            found += [option, str(value)]
    return found
