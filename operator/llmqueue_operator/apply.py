"""A plan → writes to one LLMQueue's Deployment and pods."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from llmqueue_operator.contest import Contest
from llmqueue_operator.errors import FieldConflict, NotFound, Refused, StaleVersion
from llmqueue_operator.groups import Member
from llmqueue_operator.kube import DEPLOYMENTS, LLMQUEUES, PODS, Cluster
from llmqueue_operator.names import DIGEST_ANNOTATION, deployment_name
from llmqueue_operator.planning import (
    Condition,
    ConditionType,
    PodPhase,
    QueuePlan,
    Reason,
)
from llmqueue_operator.pods.deployment import Object
from llmqueue_operator.recorder import Recorder
from llmqueue_operator.views import (
    DeploymentView,
    deployment_view,
    pod_state,
    queue_view,
    worker_key,
)
from llmqueue_operator.world import World, is_workers

VICTIM_COST = -1000
"""The default is 0: only those that may go are marked."""
REFUSED_SECONDS = 30.0
"""Between two attempts of what was refused: a quota may be raised meanwhile."""
MARKS_HOLD_SECONDS = 4.0
"""A plan older than this may rest on drain marks that lapse: no pod goes for it."""

_log = structlog.get_logger()


@dataclass(slots=True)
class _Known:
    """What is remembered of a Deployment between ticks."""

    generation: int = -1
    """Of its last state that was seen to be as applied."""
    contest: Contest = field(default_factory=Contest)
    refusal: Condition | None = None
    """What the server said no to, and when and how often it did."""
    refused_digest: str = ""
    refused_at: float = 0.0

    def refused(self, document: Object, message: str, now: float) -> Condition:
        """The server will say the same again: ask seldom, unless something else is wanted."""
        self.refused_digest, self.refused_at = _digest_of(document), now
        self.refusal = _in_the_way(Reason.DEPLOYMENT_REFUSED, message)
        return self.refusal

    def refused_for(self, document: Object, now: float) -> bool:
        """Whether this document was refused a moment ago."""
        same = self.refused_digest == _digest_of(document)
        return same and now - self.refused_at < REFUSED_SECONDS


class Applier:
    """`check` raises NotLeading where this replica may not write any more; `clock` is monotonic."""

    def __init__(
        self,
        cluster: Cluster,
        world: World,
        recorder: Recorder,
        *,
        check: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        self._cluster, self._world, self._recorder = cluster, world, recorder
        self._check, self._clock = check, clock
        self._known: dict[str, _Known] = {}

    def forget(self, key: str | None = None) -> None:
        """At the start of a term, or when an LLMQueue is gone."""
        if key is None:
            self._known.clear()
        else:
            self._known.pop(key, None)

    # ------------------------------------------------------------ the Deployment

    async def ensure(self, member: Member, document: Object, replicas: int) -> Condition | None:
        """Create the Deployment, or bring its fields up to date. Returns what is in the way.

        `replicas` is used for a new one only. Raises ApiError, NotLeading.
        """
        found = self._world.deployments.get(member.key)
        try:
            if found is None:
                return await self._create(member, document, replicas)
            if found.owner != member.view.uid:
                return await self._not_ours(member, found)
            known = self._known.setdefault(member.key, _Known())
            document = {**document, "metadata": {**document["metadata"], "uid": found.uid}}
            if known.refused_for(document, self._clock()):
                return known.refusal
            if not found.applied or (found.foreign_editors and known.generation == -1):
                self._check()
                found = self._took(await self._cluster.hand_over(document))
            elif found.applied != _digest_of(document) or (
                known.generation not in (-1, found.generation)
            ):
                self._check()
                found = self._took(await self._cluster.apply_deployment(document))
            known.generation = found.generation
        except Refused as exc:
            return self._known.setdefault(member.key, _Known()).refused(
                document, f"the Deployment was refused: {exc}", self._clock()
            )
        return None

    def _took(self, answer: Object) -> DeploymentView:
        """What the server made of a write."""
        return self._world.deployments[self._world.observe(DEPLOYMENTS, answer)]

    async def _create(self, member: Member, document: Object, replicas: int) -> Condition | None:
        """After a fresh look: what the watches show may be over."""
        known = self._known.setdefault(member.key, _Known())
        if known.refused_for(document, self._clock()):
            return known.refusal
        namespace, name = document["metadata"]["namespace"], member.resource.metadata.name
        raw = await self._cluster.queue(namespace, name)
        if raw is None or queue_view(raw).uid != member.view.uid or queue_view(raw).deleting:
            return None
        there = await self._cluster.deployment(namespace, deployment_name(name))
        if there is not None:
            if worker_key(there) != member.key:
                return _name_taken(there)
            self._world.replace_deployment(member.key, there)
            return None
        self._check()
        answer = await self._cluster.create_deployment(document, replicas)
        self._world.observe(DEPLOYMENTS, answer)
        self._known[member.key] = _Known(answer["metadata"].get("generation", 0))
        return None

    async def _not_ours(self, member: Member, found: DeploymentView) -> Condition | None:
        """A namesake's of before, which is on its way out, or somebody else's."""
        namespace = member.resource.metadata.namespace
        raw = await self._cluster.deployment(namespace, found.name)
        if raw is None:
            self._world.replace_deployment(member.key, None)
            return None
        self._world.replace_deployment(member.key, raw)
        now = deployment_view(raw)
        going = now.deleting or now.owner_kind == LLMQUEUES.kind
        return None if going else _name_taken(raw)

    # ------------------------------------------------------------ replicas

    async def scale(self, member: Member, plan: QueuePlan, planned_at: float) -> Condition | None:
        """Bring the replicas to the plan's, lower only where those named may go.

        Returns ReplicaConflict while it is one, or what the server refuses. Raises ApiError,
        NotLeading.
        """
        try:
            return await self._scale_to(member, plan, planned_at)
        except Refused as exc:
            return _in_the_way(Reason.DEPLOYMENT_REFUSED, f"scaling was refused: {exc}")

    async def _scale_to(
        self, member: Member, plan: QueuePlan, planned_at: float
    ) -> Condition | None:
        found = self._world.deployments.get(member.key)
        if found is None or found.owner != member.view.uid:
            return None
        known = self._known.setdefault(member.key, _Known())
        await self._tag(member, plan)
        if member.scaling.paused or found.replicas == plan.replicas:
            known.contest = known.contest.settled(found.foreign_scalers, self._clock())
            return known.contest.condition()
        lowering = plan.replicas < found.replicas
        if lowering and not await self._may_lower(member, plan, planned_at):
            return known.contest.condition()
        await self._write_replicas(member, found, plan, known)
        return known.contest.condition()

    async def _tag(self, member: Member, plan: QueuePlan) -> None:
        """Deletion costs: on those that may go, and on nobody else."""
        pods = self._world.pods.get(member.key, {})
        namespace = member.resource.metadata.namespace
        for uid, pod in list(pods.items()):
            if pod.phase is PodPhase.TERMINATING:
                continue
            wanted = VICTIM_COST if uid in plan.remove else 0
            if pod.deletion_cost != wanted and (wanted or pod.deletion_cost <= VICTIM_COST):
                self._check()
                await self._cluster.set_deletion_cost(namespace, pod.name, wanted or None)

    async def _may_lower(self, member: Member, plan: QueuePlan, planned_at: float) -> bool:
        """Whether a lower count would end exactly pods that were named.

        Costs must have been seen on the watch; then the pods are read afresh, since the world may
        be some seconds old.
        """
        seen = self._world.pods.get(member.key, {})
        named = set(plan.remove)
        if any(uid in seen and seen[uid].deletion_cost != VICTIM_COST for uid in named):
            return False
        namespace, name = member.key.split("/", 1)
        fresh = [state for raw in await self._cluster.pods(namespace, name)
                 if is_workers(PODS, raw) and (state := pod_state(raw)) is not None]  # fmt: skip
        present = [pod for pod in fresh if pod.phase is not PodPhase.TERMINATING]
        if any(p.deletion_cost <= VICTIM_COST for p in (*seen.values(), *present)
               if p.uid not in named and p.phase is not PodPhase.TERMINATING):  # fmt: skip
            return False  # one that was named before, and may not go any more
        ended = len(present) - plan.replicas
        if ended > sum(pod.uid in named for pod in present):
            return False
        for pod in present:
            before = seen.get(pod.uid)
            lost_readiness = not pod.ready and (before is None or before.ready)
            if pod.uid not in named and lost_readiness and ended > 0:
                return False  # it would go first, whatever its cost
        return self._clock() - planned_at < MARKS_HOLD_SECONDS

    async def _write_replicas(
        self, member: Member, found: DeploymentView, plan: QueuePlan, known: _Known
    ) -> None:
        now = self._clock()
        self._check()
        try:
            answer = await self._scale(member, found, plan.replicas, force=False)
        except FieldConflict as exc:
            if not known.contest.may_write(now):
                known.contest = known.contest.lost(exc.managers, now)
                return
            self._check()
            answer = await self._scale(member, found, plan.replicas, force=True)
            known.contest = known.contest.reverted(exc.managers, now)
            who = ", ".join(exc.managers)
            self._recorder.event(
                member.view,
                "ReplicasReverted",
                f"{who} had set {found.replicas} replicas; set back to {plan.replicas}",
                warning=True,
            )
        self._world.observe(DEPLOYMENTS, answer)
        known.generation = answer["metadata"].get("generation", 0)
        _log.info(
            "scaled",
            queue=member.key,
            before=found.replicas,
            after=plan.replicas,
            reason=plan.reason,
            bound_by=plan.bound_by,
        )

    async def _scale(
        self, member: Member, found: DeploymentView, replicas: int, *, force: bool
    ) -> Object:
        namespace = member.resource.metadata.namespace
        try:
            return await self._cluster.scale(
                namespace, found.name, replicas, version=found.version, force=force
            )
        except (StaleVersion, NotFound):
            raw = await self._cluster.deployment(namespace, found.name)
            self._world.replace_deployment(member.key, raw)
            raise


def _digest_of(document: Object) -> str:
    return str(document["metadata"]["annotations"][DIGEST_ANNOTATION])


def _in_the_way(reason: Reason, message: str) -> Condition:
    return Condition(ConditionType.READY, False, reason, message)


def _name_taken(raw: Object) -> Condition:
    name = raw["metadata"]["name"]
    return _in_the_way(
        Reason.NAME_TAKEN,
        f"a Deployment named {name} is there and does not belong to this LLMQueue: remove or"
        " rename it",
    )
