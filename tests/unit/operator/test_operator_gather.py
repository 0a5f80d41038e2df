"""World and store → the planner's snapshot and memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from llmqueue.config import Limit
from llmqueue.states import LimitUnit
from llmqueue_operator.gather import START_GUESS_SECONDS, Gatherer
from llmqueue_operator.groups import Group, assemble
from llmqueue_operator.kube.kinds import LLMQUEUES, PODS
from llmqueue_operator.lookout import Sight
from llmqueue_operator.planning import PodPhase, QueueInput
from llmqueue_operator.views import queue_view
from llmqueue_operator.world import World
from support.clusterobjects import EPOCH_SECONDS, deployment, llmqueue, pod
from unit.planning.builders import store

NOW = EPOCH_SECONDS + 100
SIGHT = Sight(store())


class Bench:
    """One LLMQueue, `sections` of its spec and its status."""

    def __init__(self, *, status: dict[str, Any] | None = None, **sections: Any) -> None:
        self.world = World()
        self.raw = llmqueue(status=status, **sections)
        self.world.observe(LLMQUEUES, self.raw)
        self.gatherer = Gatherer(self.world)

    def pods(self, *pods: dict[str, Any]) -> None:
        self.world.replace_all(PODS, pods)

    def deploy(self, **fields: Any) -> None:
        self.world.replace_deployment("default/q", deployment(**fields))

    @property
    def group(self) -> Group:
        found = assemble([queue_view(self.raw)]).group
        assert found is not None
        return found

    def queue(self) -> QueueInput:
        (found,) = self.gatherer.gather(self.group, SIGHT, NOW).queues
        return found


def test_a_budget() -> None:
    bench = Bench(limits={"requestsPerMinute": 60, "maxInFlight": 9})
    found = bench.gatherer.gather(bench.group, SIGHT, NOW)
    assert (found.budget, found.max_in_flight) == ("default/q", 9)
    assert found.limits == (Limit(LimitUnit.REQUESTS, 60),)
    assert found.store is SIGHT.snapshot
    assert (found.store_error, found.store_age_seconds) == ("", 0.0)


def test_a_store_that_is_away() -> None:
    """S13: held, with its age."""
    bench = Bench()
    found = bench.gatherer.gather(bench.group, Sight(None, "gone", 12.5), NOW)
    assert (found.store, found.store_error, found.store_age_seconds) == (None, "gone", 12.5)


def test_pods_and_replicas() -> None:
    bench = Bench(scaling={"maxReplicas": 7})
    bench.deploy(replicas=5)
    bench.pods(pod("a", started=40), pod("b", started=None, ready=None), pod("c", deleting=True))
    found = bench.queue()
    assert (found.queue, found.replicas, found.scaling.max_replicas) == ("default/q", 5, 7)
    assert {p.uid: p.phase for p in found.pods} == {
        "a": PodPhase.RUNNING,
        "b": PodPhase.PENDING,
        "c": PodPhase.TERMINATING,
    }
    assert {p.uid: p.age_seconds for p in found.pods}["a"] == 60
    assert found.expected_charge == {LimitUnit.REQUESTS: 1.0}


@pytest.mark.parametrize(
    "fields", [None, {"owner": "uid-before"}, {"owner": ""}], ids=["none", "namesake's", "nobody's"]
)
def test_replicas_of_a_deployment_that_is_not_ours(fields: dict[str, Any] | None) -> None:
    bench = Bench()
    if fields is not None:
        bench.deploy(replicas=5, **fields)
    assert bench.queue().replicas == 0


@pytest.mark.parametrize(
    ("templates", "overdue", "rolling"),
    [
        pytest.param(["t1", "t1"], False, False, id="one template"),
        pytest.param(["t1", "t2"], False, True, id="two"),
        pytest.param(["t1", "t2"], True, False, id="past its progress deadline"),
        pytest.param(["t1", "-t2"], False, False, id="the last old one is ending"),
        pytest.param([], False, False, id="S51: none"),
    ],
)
def test_a_rollout(templates: list[str], overdue: bool, rolling: bool) -> None:
    """S25, S52: nobody is taken away while two ReplicaSets share the replicas."""
    bench = Bench()
    reason = "ProgressDeadlineExceeded" if overdue else "ReplicaSetUpdated"
    bench.deploy(conditions=[{"type": "Progressing", "reason": reason}])
    bench.pods(
        *(
            pod(f"p{n}", template=each.removeprefix("-"), deleting=each.startswith("-"))
            for n, each in enumerate(templates)
        )
    )
    assert bench.queue().rolling is rolling


def test_the_time_that_pods_take_to_start() -> None:
    """The newest five count, and what was learned stays when they are gone.

    One that became ready long after its container had started had been ready before.
    """
    bench = Bench()
    assert bench.queue().scaling.pod_start_seconds == START_GUESS_SECONDS
    old = [pod(f"old{n}", created=n, started=n, ready=n + 50) for n in range(3)]
    new = [pod(f"new{n}", created=50 + n, started=55, ready=50 + n + 20 + n) for n in range(5)]
    again = pod("again", created=80, started=81, ready=81 + 3600)
    bench.pods(again, *old, *new, pod("coming", created=90, started=None, ready=None))
    assert bench.queue().scaling.pod_start_seconds == 22
    bench.pods()
    assert bench.queue().scaling.pod_start_seconds == 22
    assert bench.gatherer.start_seconds(["default/q", "default/other"]) == 22
    assert bench.gatherer.start_seconds(["default/other"]) == START_GUESS_SECONDS
    assert bench.gatherer.start_seconds([]) == 0


def test_a_start_within_the_clock_s_grain_is_a_second() -> None:
    bench = Bench()
    bench.pods(pod(created=7, ready=7))
    assert bench.queue().scaling.pod_start_seconds == 1


# ---------------------------------------------------------------- memory

STATUS = {"desired": 12, "replicas": 14, "slotMilliseconds": 8250}


@pytest.mark.parametrize(
    ("status", "deployed", "target"),
    [
        pytest.param(STATUS, {"replicas": 14}, 12, id="S34: as it was; 2 of 14 are draining"),
        pytest.param(STATUS, {"replicas": 20}, 20, id="the status was not written any more"),
        pytest.param(
            STATUS, {"replicas": 0, "scalers": ("kubectl",)}, 12, id="S22: a foreign number"
        ),
        pytest.param(None, {"replicas": 3}, 3, id="no status: what is there"),
        pytest.param(STATUS, None, 12, id="the Deployment is gone"),
        pytest.param(None, None, 0, id="new"),
        pytest.param(STATUS, {"replicas": 9, "owner": "uid-before"}, 12, id="a namesake's"),
        pytest.param(None, {"replicas": 9, "owner": "uid-before"}, 0, id="a namesake's, no status"),
        pytest.param({"desired": 0, "replicas": 0}, {"replicas": 0}, 0, id="zero is a number"),
    ],
)
def test_seeding(
    status: dict[str, Any] | None, deployed: dict[str, Any] | None, target: int
) -> None:
    """S23, S34: nothing moves because of a restart, a change of leader or a re-apply."""
    bench = Bench(status=status)
    if deployed is not None:
        bench.deploy(**deployed)
    snapshot = bench.gatherer.gather(bench.group, SIGHT, NOW)
    memory = bench.gatherer.seed(bench.group, snapshot, 500.0)
    assert memory.epoch == "e1"
    assert memory.queues["default/q"].target == target
    assert memory.queues["default/q"].slot_seconds == (8.25 if status == STATUS else None)
    assert memory.queues["default/q"].wishes == ((500.0, target),)


def test_seeding_without_a_store() -> None:
    bench = Bench(status=STATUS)
    snapshot = bench.gatherer.gather(bench.group, Sight(None, "gone"), NOW)
    memory = bench.gatherer.seed(bench.group, snapshot, 500.0)
    assert (memory.epoch, memory.queues["default/q"].target) == (None, 12)


def test_only_new_queues_are_seeded_later() -> None:
    bench = Bench(status=STATUS)
    bench.deploy(replicas=14)
    snapshot = bench.gatherer.gather(bench.group, SIGHT, NOW)
    memory = bench.gatherer.seed(bench.group, snapshot, 500.0)
    assert bench.gatherer.seed_new(bench.group, snapshot, memory, 600.0) is memory
    forgetful = replace(memory, queues={"default/other": memory.queues["default/q"]})
    seeded = bench.gatherer.seed_new(bench.group, snapshot, forgetful, 600.0)
    assert seeded.queues["default/q"].wishes == ((600.0, 12),)
    assert seeded.queues["default/other"] is memory.queues["default/q"]
