"""An Applier whose cluster is recorded, and whose clock and leadership a test sets."""

from __future__ import annotations

from typing import Any

from llmqueue_operator.apply import Applier
from llmqueue_operator.errors import NotLeading
from llmqueue_operator.kube.kinds import PODS
from llmqueue_operator.planning import BoundBy, Condition, QueuePlan
from llmqueue_operator.recorder import Recorder
from llmqueue_operator.world import World
from support.clusterobjects import deployment, member, pod
from support.recordedcluster import RecordedCluster

KEY, NAME = "default/q", "default/q-worker"


def planned(replicas: int, *, remove: tuple[str, ...] = ()) -> QueuePlan:
    return QueuePlan(
        queue=KEY,
        wish=replicas,
        target=replicas,
        replicas=replicas,
        mark=(),
        unmark=(),
        remove=remove,
        bound_by=BoundBy.BACKLOG,
        reason="ScaledDown",
        effective_rpm=60,
        eta_seconds=None,
        slot_seconds=8,
    )


class ApplyBench:
    """A Deployment of pods a, b, c that are known, running and ready."""

    def __init__(self, *, replicas: int = 3, **sections: Any) -> None:
        self.now, self.leading = 1000.0, True
        self.cluster, self.world = RecordedCluster(), World()
        self.member = member(**sections)
        self.recorder = Recorder(self.cluster, pod="operator-1")  # type: ignore[arg-type]
        self.events: list[str] = []
        self.recorder.event = self._event  # type: ignore[method-assign]
        self.applier = Applier(
            self.cluster,  # type: ignore[arg-type]
            self.world,
            self.recorder,
            check=self._check,
            clock=lambda: self.now,
        )
        self.show(deployment(replicas=replicas))
        self.pods(*(pod(name) for name in "abc"))

    def _check(self) -> None:
        self.cluster.calls.append(("check",))
        if not self.leading:
            raise NotLeading("another replica leads")

    def _event(self, _view: Any, reason: str, message: str, *, warning: bool = False) -> None:
        self.events.append(f"{reason}: {message}")

    def show(self, raw: dict[str, Any]) -> None:
        """What the server has, and the watch has brought."""
        self.cluster.deployments[NAME] = raw
        self.world.replace_deployment(KEY, raw)

    def pods(self, *pods: dict[str, Any], fresh: list[dict[str, Any]] | None = None) -> None:
        """What the watch has brought; `fresh` is what a list shows now."""
        self.world.pods.clear()
        for each in pods:
            self.world.observe(PODS, each)
        self.cluster.fresh_pods = list(pods) if fresh is None else fresh

    async def scale(self, plan: QueuePlan, *, age: float = 0.0) -> Condition | None:
        return await self.applier.scale(self.member, plan, self.now - age)

    @property
    def replicas(self) -> int:
        return self.cluster.deployments[NAME]["spec"]["replicas"]
