"""LLMQueues that go: at once, completely, also while no operator runs; and that come back."""

from __future__ import annotations

import time

from cluster.bench import Kube, Space, until
from llmqueue.client import Client, JobSpec
from llmqueue.errors import UnknownQueue
from llmqueue_operator.kube import DEPLOYMENTS, LLMQUEUES, PODS

_PAYLOAD = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]}


async def test_deleted_while_the_operator_is_stopped(kube: Kube) -> None:
    """S49: no finalizer holds it; the operator puts the store in order when it is back, and the
    same name has its jobs again."""
    async with Space(kube, "deletion") as space:
        provider = await space.provider()
        await space.operator()
        held = {"limits": {"requestsPerMinute": 60}, "queue": {"suspend": True}}
        await space.queue("kept", provider, **held)
        await space.served("kept")
        await space.enqueue("kept", 5)
        await space.scale_operator(0)

        async def stopped() -> bool:
            return not await space.operator_pods()

        await until("the operator is gone", stopped, seconds=40)
        started = time.monotonic()
        await kube.run("-n", space.name, "delete", "llmqueue", "kept", "--timeout=10s")
        assert time.monotonic() - started < 5

        async def collected() -> bool:
            return await space.deployment("kept") is None

        await until("its Deployment went with it", collected, seconds=20)
        await space.scale_operator(1)
        await until("enqueue is refused", lambda: _refused(space, "kept"), seconds=40)
        await space.queue("kept", provider, limits={"requestsPerMinute": 60})
        await space.served("kept")
        await space.finished("kept", 5, seconds=60)


async def test_deleted_and_applied_again(kube: Kube) -> None:
    """The same manifest a moment later is another object: it gets a Deployment and takes jobs."""
    async with Space(kube, "again") as space:
        provider = await space.provider()
        await space.operator()
        for _ in range(2):
            await space.queue("same", provider, limits={"requestsPerMinute": 60})
            await space.served("same")
            await kube.run("-n", space.name, "delete", "llmqueue", "same")
            await space.apply_again("same")
            uid = (await space.resource("same"))["metadata"]["uid"]

            async def renewed(uid: str = uid) -> bool:
                found = await space.deployment("same")
                owners = found["metadata"]["ownerReferences"] if found else []
                return [owner["uid"] for owner in owners] == [uid]

            await until("the Deployment is the new one's", renewed, seconds=20)
            await until("it takes jobs", lambda: _takes_jobs(space), seconds=20)
            await kube.run("-n", space.name, "delete", "llmqueue", "same")
            await until("enqueue is refused", lambda: _refused(space, "same"), seconds=20)


async def _takes_jobs(space: Space) -> bool:
    try:
        await space.enqueue("same", 1)
    except UnknownQueue:
        return False
    return True


async def _refused(space: Space, name: str) -> bool:
    try:
        await space.store.registry()
        await Client(space.store).enqueue_many(f"{space.name}/{name}", [JobSpec(payload=_PAYLOAD)])
    except UnknownQueue:
        return True
    return False


async def test_a_namespace_with_fifty_of_them_is_gone_soon(kube: Kube) -> None:
    """S48: and nothing is left over, not even in the store."""
    async with Space(kube, "fifty") as space:
        await space.operator()
        documents = [
            {
                "apiVersion": LLMQUEUES.api_version,
                "kind": LLMQUEUES.kind,
                "metadata": {"name": f"q{number}", "namespace": space.name},
                "spec": {
                    "provider": {"type": "openai"},
                    "limits": {"requestsPerMinute": 60},
                },
            }
            for number in range(50)
        ]
        applied = time.monotonic()
        await kube.apply(*documents)
        print(f"applied in {time.monotonic() - applied:.1f} s")

        async def all_served() -> bool:
            known = await space.store.registry()
            return len(known) == 50 and await _count(kube, space, DEPLOYMENTS) == 51

        await until("fifty are served", all_served, seconds=60)
        print(f"fifty LLMQueues served after {time.monotonic() - applied:.1f} s")
        started = time.monotonic()
        await kube.run("-n", space.name, "delete", "llmqueues", "--all", "--timeout=60s")

        async def nothing_left() -> bool:
            return (
                await _count(kube, space, LLMQUEUES) == 0
                and await _count(kube, space, DEPLOYMENTS) == 1  # the operator's own
                and not await space.store.registry()
            )

        await until("nothing is left", nothing_left, seconds=60)
        took = time.monotonic() - started
        print(f"fifty LLMQueues gone after {took:.1f} s")
        assert took < 60
        started = time.monotonic()
        await kube.run("delete", "namespace", space.name, "--timeout=60s")
        took = time.monotonic() - started
        print(f"its namespace gone after {took:.1f} s")
        assert took < 60
        assert await _count(kube, space, PODS) == 0


async def _count(kube: Kube, space: Space, kind) -> int:  # type: ignore[no-untyped-def]
    return len([1 async for _ in kube.client.listed(kind, space.name)])
