"""One budget's round: what fails of it, and what is done all the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from llmqueue.errors import LlmqueueError, StoreUnavailable, UnknownQueue
from llmqueue_operator.apply import Applier
from llmqueue_operator.errors import ApiUnavailable, NotLeading, Refused
from llmqueue_operator.kube.kinds import DEPLOYMENTS, LLMQUEUES
from llmqueue_operator.lookout import Sight
from llmqueue_operator.metrics import Metrics
from llmqueue_operator.pods import WorkerRedis
from llmqueue_operator.reconciler import QUIET_SECONDS, TICK_SECONDS, Parts, Reconciler
from llmqueue_operator.recorder import Recorder
from llmqueue_operator.settings import OperatorSettings
from llmqueue_operator.world import World
from support.clusterobjects import deployment, llmqueue
from support.recordedcluster import RecordedCluster
from unit.planning.builders import pause, seen, store

KEY, BUDGET = "default/q", "default/~team"
SHARED = {"limits": {"requestsPerMinute": 60, "sharedBudget": {"name": "team"}}}
OTHER = {**SHARED, "provider": {"type": "anthropic"}}
"""Cannot take part beside the others."""


class Store:
    """Stands for RedisStore and for Connections."""

    def __init__(self) -> None:
        self.failure: LlmqueueError | None = None
        self.plans: dict[str, Any] = {}

    async def store(self, _connection: str) -> Store:
        return self

    def worker_redis(self, _resource: Any) -> WorkerRedis:
        return WorkerRedis(url="redis://v")

    async def mark_drain(self, *_: Any, seconds: float) -> None:
        if self.failure is not None:
            raise self.failure

    async def unmark_drain(self, *_: Any) -> None: ...

    async def write_plan(self, queue: str, fields: Any) -> None:
        self.plans[queue] = fields


class Lookout:
    def __init__(self) -> None:
        self.forgotten: list[str | None] = []

    def forget(self, budget: str | None = None) -> None:
        self.forgotten.append(budget)


class Bench:
    """q without workers, and jobs that want some."""

    def __init__(self, folder: Path) -> None:
        self.leading, self.now = True, 1000.0
        self.cluster, self.world, self.store = RecordedCluster(), World(), Store()
        self.metrics, self.lookout = Metrics(), Lookout()
        cluster: Any = self.cluster
        recorder = Recorder(cluster, pod="operator-1")
        self.reconciler = Reconciler(
            Parts(
                settings=OperatorSettings(
                    namespace="default", pod="p", worker_image="w", connections_dir=folder
                ),
                cluster=cluster,
                world=self.world,
                connections=self.store,  # type: ignore[arg-type]
                lookout=self.lookout,  # type: ignore[arg-type]
                recorder=recorder,
                applier=Applier(
                    cluster, self.world, recorder, check=self._check, clock=lambda: self.now
                ),
                metrics=self.metrics,
                check=self._check,
                clock=lambda: self.now,
            )
        )
        self.queue()
        raw = deployment(replicas=0)
        self.cluster.deployments["default/q-worker"] = raw
        self.world.observe(DEPLOYMENTS, raw)

    def _check(self) -> None:
        if not self.leading:
            raise NotLeading("another replica leads")

    def queue(self, name: str = "q", **fields: Any) -> None:
        raw = llmqueue(name, **{**SHARED, **fields})
        self.cluster.queues[f"default/{name}"] = raw
        self.world.observe(LLMQUEUES, raw)

    async def round(self, *, ready: int = 5000) -> float:
        assembly = self.reconciler.assembly(BUDGET)
        sight = Sight(store([seen(KEY, ready=ready)])) if assembly.group else None
        return await self.reconciler.reconcile(BUDGET, assembly, sight)

    @property
    def replicas(self) -> int:
        return self.cluster.deployments["default/q-worker"]["spec"]["replicas"]

    def condition(self, name: str, kind: str) -> tuple[str, str]:
        found = self.cluster.statuses[name]["conditions"]
        return next((c["status"], c["reason"]) for c in found if c["type"] == kind)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


async def test_a_round(bench: Bench) -> None:
    assert await bench.round() == TICK_SECONDS
    assert bench.replicas > 0
    assert bench.cluster.asked("status") == [("q", "uid-q")]
    assert KEY in bench.store.plans
    assert dict(bench.metrics.conditions()).keys() == {KEY}


@pytest.mark.parametrize(
    "failure", [UnknownQueue("q"), StoreUnavailable("away")], ids=["not registered", "away"]
)
async def test_marks_that_cannot_be_written_do_not_stop_scaling(
    bench: Bench, failure: LlmqueueError
) -> None:
    """More workers rest on no mark; the trouble is told when all is done."""
    bench.store.failure = failure
    with pytest.raises(type(failure)):
        await bench.round()
    assert bench.replicas > 0
    assert bench.cluster.asked("status")


async def test_a_refused_template_does_not_stop_scaling(bench: Bench) -> None:
    bench.cluster.failures = {"hand over": Refused("no"), "apply": Refused("no")}
    await bench.round()
    assert bench.replicas > 0
    assert bench.condition(KEY, "Ready") == ("False", "DeploymentRefused")
    shown = set(bench.metrics.conditions()[KEY])
    assert ("Ready", "DeploymentRefused", False) in shown


async def test_a_refused_scaling_is_told(bench: Bench) -> None:
    bench.cluster.failures = {"scale": Refused("the policy says no")}
    await bench.round()
    assert bench.condition(KEY, "Ready") == ("False", "DeploymentRefused")


@pytest.mark.parametrize("lost", [False, True], ids=["", "and its status cannot be written"])
async def test_one_that_cannot_take_part_does_not_hold_the_others_up(
    bench: Bench, lost: bool
) -> None:
    bench.queue("z", created=5, **OTHER)
    if lost:
        write = bench.cluster.write_status

        async def write_status(namespace: str, name: str, uid: str, status: Any) -> None:
            if name == "z":
                raise ApiUnavailable("overloaded")
            await write(namespace, name, uid, status)

        bench.cluster.write_status = write_status  # type: ignore[method-assign]
        with pytest.raises(ApiUnavailable):
            await bench.round()
    else:
        await bench.round()
        assert bench.condition("default/z", "Ready") == ("False", "MembersDiffer")
    assert bench.replicas > 0
    assert KEY in bench.cluster.statuses
    assert ("default/z" in bench.metrics.conditions()) is not lost


@pytest.mark.parametrize("lost", [False, True], ids=["", "and its status cannot be written"])
async def test_nobody_can_take_part(bench: Bench, lost: bool) -> None:
    """What was written of this budget is not known any more: once it can be read, it is anew."""
    await bench.round()
    bench.queue(version=2, provider={"type": "magic"})
    budget = bench.world.budget_of(KEY)
    assert budget is not None
    bench.lookout.forgotten.clear()
    if lost:
        bench.cluster.failures = {"status": ApiUnavailable("overloaded")}
    assembly = bench.reconciler.assembly(budget)
    try:
        assert await bench.reconciler.reconcile(budget, assembly, None) == QUIET_SECONDS
        assert not lost
    except ApiUnavailable:
        assert lost
    assert bench.lookout.forgotten == [budget]
    assert KEY not in bench.metrics.queues(), "its last plan is no fact any more"


async def test_a_deposed_leader_writes_nothing(bench: Bench) -> None:
    bench.queue("z", created=5, **OTHER)
    bench.leading = False
    with pytest.raises(NotLeading):
        await bench.round()
    assert bench.cluster.writes == []


async def test_a_status_that_stays_is_still_exported(bench: Bench) -> None:
    """A new leader finds all written: its metrics must not lack the conditions."""
    await bench.round(ready=0)
    await bench.round(ready=0)
    written = len(bench.cluster.asked("status"))
    before = bench.metrics.conditions()[KEY]
    bench.metrics.forget()
    await bench.round(ready=0)
    assert len(bench.cluster.asked("status")) == written
    assert bench.metrics.conditions()[KEY] == before


@pytest.mark.parametrize("budget", [BUDGET, None], ids=["of a budget", "never seen"])
async def test_forgetting_a_queue(bench: Bench, budget: str | None) -> None:
    """Also what was configured: a namesake's is the same to the letter, and is to be written."""
    await bench.round()
    bench.lookout.forgotten.clear()
    bench.store.plans.clear()
    bench.reconciler.forget_queue(KEY, budget)
    assert bench.lookout.forgotten == ([BUDGET] if budget else [])
    assert bench.metrics.queues() == {}
    assert bench.metrics.conditions() == {}
    await bench.round()
    assert KEY in bench.store.plans


@pytest.mark.parametrize("method", ["scale", "write_status"])
async def test_a_queue_that_goes_during_its_round_leaves_no_metrics(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """Nothing would ever plan it again, nor take its series back."""
    write = getattr(bench.cluster, method)

    async def meanwhile(*args: Any, **options: Any) -> Any:
        bench.world.observe(LLMQUEUES, llmqueue("q", **SHARED, version=2), deleted=True)
        bench.reconciler.forget_queue(KEY, BUDGET)
        return await write(*args, **options)

    monkeypatch.setattr(bench.cluster, method, meanwhile)
    await bench.round()
    assert KEY not in bench.world.queues
    assert bench.metrics.queues() == {}
    assert bench.metrics.conditions() == {}


async def test_each_reset_of_the_store_is_counted_once(bench: Bench) -> None:
    """Empty, then configured anew; a replica that has just begun to lead has seen none."""

    async def look(epoch: str | None) -> int:
        sight = Sight(store([seen(KEY, ready=1)], epoch=epoch))
        await bench.reconciler.reconcile(BUDGET, bench.reconciler.assembly(BUDGET), sight)
        return bench.metrics.resets[KEY]

    assert [await look(e) for e in ("e1", "e1", None, None, "e2", "e2", "e3")] == [
        0,
        0,
        1,
        1,
        1,
        1,
        2,
    ]
    bench.reconciler.forget()
    assert await look("e4") == 2


async def test_a_queue_that_moves_to_another_redis_has_lost_nothing(bench: Bench) -> None:
    """Who is on call for Redis sleeps on; a reset of the new one is one."""
    for connection, epoch, resets in (
        ("default", "e1", 0),
        ("other", None, 0),
        ("other", "e2", 0),
        ("other", "e3", 1),
    ):
        raw = llmqueue("q", **SHARED, version=int(bench.now), redis={"connection": connection})
        bench.world.observe(LLMQUEUES, raw)
        sight = Sight(store([seen(KEY, ready=1)], epoch=epoch))
        await bench.reconciler.reconcile(BUDGET, bench.reconciler.assembly(BUDGET), sight)
        bench.now += 1
        assert bench.metrics.resets[KEY] == resets, (connection, epoch)


async def test_every_pause_concerns_a_queue_whose_key_is_not_known(bench: Bench) -> None:
    sight = Sight(
        store([seen(KEY, ready=1)], pauses=[pause("AUTH", key="k"), pause("QUOTA", key="l")])
    )
    await bench.reconciler.reconcile(BUDGET, bench.reconciler.assembly(BUDGET), sight)
    assert [each.kind for each in bench.metrics.queues()[KEY].pauses] == ["AUTH", "QUOTA"]
