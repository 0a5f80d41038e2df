"""The test cluster as its administrator: kubectl where a user would type it, plain HTTP else."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from llmqueue_operator.kube import KubeClient

Object = dict[str, Any]
_KUBECTL_SECONDS = 120


class CommandFailed(Exception):
    """A command said no; its message is what a user would read."""


class Kube:
    """`kubectl` is the path of the program."""

    def __init__(self, kubectl: Path, kubeconfig: Path, client: KubeClient) -> None:
        self.kubectl, self.kubeconfig, self.client = kubectl, kubeconfig, client

    @classmethod
    async def connect(cls, kubectl: Path, kubeconfig: Path) -> Kube:
        return cls(kubectl, kubeconfig, await KubeClient.connect(kubeconfig))

    @classmethod
    @asynccontextmanager
    async def connected(cls, kubectl: Path, kubeconfig: Path) -> AsyncIterator[Kube]:
        """Closed at the end, however that comes."""
        kube = await cls.connect(kubectl, kubeconfig)
        try:
            yield kube
        finally:
            await kube.client.close()
            await asyncio.sleep(0)

    async def run(self, *arguments: str, stdin: str = "") -> str:
        """stdout of a kubectl command. Raises CommandFailed with its stderr."""
        found = await asyncio.to_thread(
            subprocess.run,
            [str(self.kubectl), *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=_KUBECTL_SECONDS,
            env={**os.environ, "KUBECONFIG": str(self.kubeconfig)},
        )
        if found.returncode:
            raise CommandFailed(found.stderr.strip())
        return found.stdout

    async def apply(self, *documents: Mapping[str, Any], namespace: str | None = None) -> str:
        """`kubectl apply`, as a user does it."""
        scope = [] if namespace is None else ["-n", namespace]
        listed = {"apiVersion": "v1", "kind": "List", "items": list(documents)}
        return await self.run("apply", *scope, "-f", "-", stdin=json.dumps(listed))

    async def raw(self, method: str, path: str, body: Object | None = None) -> Object:
        return await self.client.request(method, path, body=body)
