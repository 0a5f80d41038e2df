"""`llmqueue up` as a user runs it: real processes, a real store, a provider over real sockets."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from llmqueue.client import Client, JobSpec
from llmqueue.errors import StoreError
from llmqueue_cli.simulate.distribution import Constant
from llmqueue_cli.simulate.limits import Limits
from llmqueue_cli.simulate.options import ProviderOptions
from llmqueue_cli.simulate.provider import FakeProvider
from support.localup import LocalUp, alive
from support.valkey import ValkeyServer

pytestmark = pytest.mark.timeout(90)

MANIFEST = """
apiVersion: llmqueue.dev/v1alpha1
kind: LLMQueue
metadata: {{name: {name}}}
spec:
  provider: {{type: openai-compatible, baseURL: "{url}/v1"}}
  limits: {{requestsPerMinute: {rpm}}}
  scaling: {{slotsPerWorker: {slots}, expectedCallSeconds: 1, stabilizationSeconds: 3,
            idleSeconds: 2, maxReplicas: {max_replicas}}}
"""


class Bench(LocalUp):
    """One machine with a provider that runs in the test itself."""

    def __init__(self, folder: Path, fake: FakeProvider) -> None:
        super().__init__(folder)
        self.fake = fake

    def write(self, *, name: str = "batch", rpm: int = 6000, slots: int = 4,
              max_replicas: int = 2) -> None:  # fmt: skip
        self.manifest.write_text(
            MANIFEST.format(
                name=name, url=self.fake.url, rpm=rpm, slots=slots, max_replicas=max_replicas
            )
        )

    async def enqueue(self, count: int, queue: str = "batch") -> list[str]:
        specs = [
            JobSpec(
                payload={"model": "m", "max_tokens": 5,
                         "messages": [{"role": "user", "content": str(n)}]}
            )
            for n in range(count)
        ]  # fmt: skip
        async with self.store() as store:
            return [done.id for done in await Client(store).enqueue_many(queue, specs)]

    async def reach(self, state: str, count: int, *, seconds: float = 30.0) -> None:
        """Wait for a number of jobs in a state; an outage of the store is sat out."""
        deadline = time.monotonic() + seconds
        seen: Any = None
        while time.monotonic() < deadline:
            with suppress(StoreError, OSError):
                seen = (await self.status("default/batch"))["states"]
                if seen[state] >= count:
                    return
            await asyncio.sleep(0.1)
        raise AssertionError(f"{count} {state} not reached, seen {seen}; log:\n{self.said()}")


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    options = ProviderOptions(limits=Limits(requests=6000), latency=Constant(1.0))
    async with FakeProvider(options) as fake, Bench(tmp_path, fake) as bench:
        bench.write()
        yield bench


async def test_jobs_flow_and_everything_is_seen(bench: Bench) -> None:
    up = await bench.up()
    lines = "\n".join(
        json.dumps({"payload": {"model": "m", "messages": [{"role": "user", "content": str(n)}]}})
        for n in range(20)
    )
    code, out, err = await bench.run("enqueue", "batch", "--file", "-", "--wait", stdin=lines)
    assert (code, err) == (0, "")
    ids = out.split()
    code, out, _ = await bench.run("job", ids[0], "--json")
    job = json.loads(out)
    assert (code, job["state"], len(job["attempts"])) == (0, "succeeded", 1)
    assert job["result"]["choices"]
    assert job["cost_usd"] is None, "the model has no price"
    assert bench.fake.stats()["calls"] == 20
    assert bench.fake.stats()["billed_twice"] == 0
    await bench.until(lambda: not bench.workers(up))
    status = await bench.status("default/batch")
    assert status["workers"]["desired"] == 0
    assert "workers 0 → 2: MaxReplicas" in bench.said()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
async def test_a_signal_under_load_drains(bench: Bench, number: signal.Signals) -> None:
    """S11"""
    up = await bench.up()
    await bench.enqueue(30)
    await bench.reach("sent", 6)
    below = bench.everything_below(up)
    up.send_signal(number)
    assert await bench.end(up) == 0
    assert [pid for pid in below if alive(pid)] == []
    assert not (bench.data / "up.json").exists()
    assert list((bench.data / "run").iterdir()) == []
    again = await bench.up("--until-idle")
    assert await bench.end(again) == 0
    stats = bench.fake.stats()
    assert (stats["calls"], stats["billed"]["jobs"], stats["billed_twice"]) == (30, 30, 0)


async def test_until_idle_ends_when_the_work_is_done(bench: Bench) -> None:
    up = await bench.up("--until-idle")
    await bench.enqueue(12)
    assert await bench.end(up) == 0
    assert bench.fake.stats()["billed"]["jobs"] == 12
    assert "no job is left to do" in bench.said()


async def test_a_killed_worker_loses_nothing(bench: Bench) -> None:
    """S9"""
    up = await bench.up()
    await bench.enqueue(30)
    await bench.reach("sent", 6)
    victim = bench.workers(up)[0]
    os.kill(victim, signal.SIGKILL)
    deadline = time.monotonic() + 45
    states: dict[str, int] = {}
    while states.get("succeeded", 0) + states.get("review", 0) < 30:
        assert time.monotonic() < deadline, states
        await asyncio.sleep(0.2)
        states = (await bench.status("default/batch"))["states"]
    assert sum(states.values()) == 30, "each in exactly one place"
    assert states["review"] <= 4, "at most what the victim had sent: no price, so a person decides"
    assert f"worker {victim} ended unasked" in bench.said()
    assert bench.fake.stats()["billed_twice"] == 0


async def test_a_killed_up_leaves_nobody_behind_and_the_next_goes_on(bench: Bench) -> None:
    up = await bench.up()
    await bench.enqueue(30)
    await bench.reach("sent", 6)
    below = bench.everything_below(up)
    up.kill()
    up.wait()
    again = await bench.up("--until-idle")
    assert await bench.end(again, seconds=45) == 0
    await bench.until(lambda: not [pid for pid in below if alive(pid)], seconds=15)
    stats = bench.fake.stats()
    assert (stats["billed"]["jobs"], stats["billed_twice"]) == (30, 0)


async def test_workers_of_a_killed_up_drain_and_the_store_follows_them(bench: Bench) -> None:
    up = await bench.up()
    await bench.enqueue(30)
    await bench.reach("sent", 6)
    below = bench.everything_below(up)
    assert len(below) == 4, "2 workers, keeper, server"
    up.kill()
    up.wait()
    await bench.until(lambda: not [pid for pid in below if alive(pid)], seconds=20)
    again = await bench.up()
    states = (await bench.status("default/batch"))["states"]
    assert states["review"] == 0, "their running calls were settled before they left"
    assert sum(states.values()) == 30
    again.send_signal(signal.SIGTERM)
    assert await bench.end(again) == 0


async def test_a_killed_valkey_is_restarted(bench: Bench) -> None:
    up = await bench.up()
    await bench.enqueue(30)
    await bench.reach("sent", 6)
    os.kill(bench.server(up), signal.SIGKILL)
    await bench.reach("succeeded", 30)
    assert "the embedded Valkey had died and runs again" in bench.said()
    assert bench.fake.stats()["billed_twice"] == 0


async def test_a_changed_limit_is_live_and_restarts_no_worker(bench: Bench) -> None:
    up = await bench.up()
    await bench.enqueue(90)
    await bench.reach("sent", 6)
    before = set(bench.workers(up))
    bench.write(rpm=1200)
    await bench.until(lambda: "the manifests were read again" in bench.said())
    status = await bench.status("default/batch")
    assert set(bench.workers(up)) == before
    assert 1000 < status["effective_rpm"] < 1200


async def test_a_manifest_with_a_mistake_changes_nothing(bench: Bench) -> None:
    up = await bench.up()
    bench.manifest.write_text(bench.manifest.read_text().replace("Minute: 6000", "Minute: -1"))
    await bench.until(lambda: "kept the last good manifests" in bench.said())
    assert "requestsPerMinute" in bench.said()
    await bench.enqueue(2)
    await bench.reach("succeeded", 2)
    up.send_signal(signal.SIGTERM)
    assert await bench.end(up) == 0


async def test_changed_slots_replace_the_workers_without_loss(bench: Bench) -> None:
    up = await bench.up()
    await bench.enqueue(30)
    await bench.reach("sent", 6)
    before = set(bench.workers(up))
    bench.write(slots=6)
    await bench.until(lambda: bench.workers(up) and not before & set(bench.workers(up)))
    await bench.reach("succeeded", 30)
    assert bench.fake.stats()["billed_twice"] == 0


async def test_several_queues_in_one_run(bench: Bench) -> None:
    bench.write(max_replicas=1)
    text = bench.manifest.read_text()
    bench.manifest.write_text(text + "---" + text.replace("name: batch", "name: other"))
    up = await bench.up("--until-idle")
    await bench.enqueue(8)
    await bench.enqueue(8, queue="default/other")
    assert await bench.end(up) == 0
    assert bench.fake.stats()["billed"]["jobs"] == 16
    assert re.search(r"serving default/batch, default/other", bench.said())


async def test_a_queue_joins_a_budget_once_its_jobs_are_finished(bench: Bench) -> None:
    """Its jobs lie with the budget: they would wait there for ever."""
    up = await bench.up()
    await bench.enqueue(20)
    shared = bench.manifest.read_text().replace("limits: {", "limits: {sharedBudget: {name: x}, ")
    bench.manifest.write_text(shared)
    await bench.until(lambda: "jobs are not finished" in bench.said())
    await bench.reach("succeeded", 20)
    bench.manifest.write_text(shared + "# once more")
    await bench.until(lambda: "the manifests were read again" in bench.said())
    await asyncio.sleep(3)  # the workers of before leave
    await bench.enqueue(3)
    await bench.reach("succeeded", 3)
    up.send_signal(signal.SIGTERM)
    assert await bench.end(up) == 0


@pytest.mark.parametrize(
    ("spec", "options", "code", "words"),
    [
        pytest.param("kind: LLMQueue", (), 2, "apiVersion", id="bad manifest"),
        pytest.param(None, ("--redis-url", "redis://127.0.0.1:1"), 3, "cannot be reached",
                     id="no Redis"),
        pytest.param(None, ("--credentials-file", "/none"), 2, "/none cannot be read",
                     id="no keys"),
    ],
)  # fmt: skip
async def test_what_stops_up_at_its_start(
    bench: Bench, spec: str | None, options: tuple[str, ...], code: int, words: str
) -> None:
    if spec:
        bench.manifest.write_text(spec)
    got, out, err = await bench.run("up", "-f", str(bench.manifest), *options)
    assert (got, out) == (code, "")
    assert words in err
    assert "Traceback" not in err


async def test_an_outage_raises_to_at_least_once(bench: Bench) -> None:
    """S16: 0 workers, Redis down, onOutage AtLeast 1: one worker, once; S13: on when it is back."""
    outage = "onOutage: {policy: AtLeast, replicas: 1}, maxReplicas"
    bench.manifest.write_text(bench.manifest.read_text().replace("maxReplicas", outage))
    async with ValkeyServer(unix=True) as server:
        up = bench.start("--redis-url", server.url)
        await bench.until(lambda: "serving default/batch from the Redis you named" in bench.said())
        assert bench.workers(up) == []
        await server.kill()
        await bench.until(lambda: bench.workers(up))
        (worker,) = bench.workers(up)
        await asyncio.sleep(2.5)
        assert bench.workers(up) == [worker], "once"
        assert "the store cannot be used, workers are held" in bench.said()
        await server.start()
        await bench.until(lambda: "the store is back after" in bench.said(), seconds=5)
        up.send_signal(signal.SIGTERM)
        assert await bench.end(up) == 0


async def test_two_ups_do_not_share_a_folder(bench: Bench) -> None:
    up = await bench.up()
    code, _, err = await bench.run("up", "-f", str(bench.manifest))
    assert code == 2
    assert f"another `llmqueue up` (pid {up.pid})" in err
