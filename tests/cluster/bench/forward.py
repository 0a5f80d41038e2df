"""`kubectl port-forward`: the way into a cluster whose Services this machine does not reach."""

from __future__ import annotations

import asyncio
import re
from typing import Self

from cluster.bench.kube import Kube

_LISTENS = re.compile(rb"Forwarding from 127\.0\.0\.1:(\d+)")
_START_SECONDS = 20.0


class Forward:
    """A local port in front of a Service's port."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self._process, self.port = process, port

    @classmethod
    async def to(cls, kube: Kube, namespace: str, service: str, port: int) -> Self:
        process = await asyncio.create_subprocess_exec(
            str(kube.kubectl),
            f"--kubeconfig={kube.kubeconfig}",
            *("-n", namespace, "port-forward", f"service/{service}", f":{port}"),
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        async with asyncio.timeout(_START_SECONDS):
            line = await process.stdout.readline()
        found = _LISTENS.match(line)
        assert found, f"no port is forwarded: {line!r}"
        return cls(process, int(found.group(1)))

    async def close(self) -> None:
        if self._process.returncode is None:
            self._process.terminate()
        await self._process.wait()
