"""The cluster as last seen: LLMQueues, their Deployments and pods, and the budgets they form.

Fed by kopf's watches and by full lists; older versions of an object never replace newer ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from llmqueue.documents import object_at, objects_at
from llmqueue.spec import budget_id
from llmqueue_operator.kube.kinds import DEPLOYMENTS, LLMQUEUES, PODS, Kind
from llmqueue_operator.names import QUEUE_LABEL, deployment_name
from llmqueue_operator.views import (
    DeploymentView,
    PodState,
    QueueView,
    deployment_view,
    pod_state,
    queue_view,
    worker_key,
)

Object = Mapping[str, Any]


def newer(version: str, than: str) -> bool:
    """Whether a resourceVersion is later; those that are no numbers are taken as they come."""
    if version.isdigit() and than.isdigit():
        return int(version) > int(than)
    return True


def key_of(kind: Kind, raw: Object) -> str:
    """ "<namespace>/<LLMQueue>" that an object is or belongs to."""
    meta = raw["metadata"]
    return f"{meta['namespace']}/{meta['name']}" if kind is LLMQUEUES else worker_key(raw)


def is_workers(kind: Kind, raw: Object) -> bool:
    """Whether a labelled Deployment or pod is what its label says: others may copy the label."""
    meta = raw["metadata"]
    name = deployment_name(object_at(meta, "labels").get(QUEUE_LABEL, ""))
    if kind is DEPLOYMENTS:
        return bool(meta["name"] == name)
    return any(
        owner.get("kind") == "ReplicaSet" and str(owner.get("name", "")).startswith(f"{name}-")
        for owner in objects_at(meta, "ownerReferences")
    )


class World:
    """Keys are "<namespace>/<LLMQueue>"."""

    def __init__(self) -> None:
        self.queues: dict[str, QueueView] = {}
        self.deployments: dict[str, DeploymentView] = {}
        self.pods: dict[str, dict[str, PodState]] = {}
        """Key → uid → pod."""
        self._groups: dict[str, set[str]] = {}
        self._budgets: dict[str, str] = {}
        """Key → budget, kept after the LLMQueue is gone: what it left is put in order there."""

    # ------------------------------------------------------------ what is seen

    def observe(self, kind: Kind, raw: Object, *, deleted: bool = False) -> str:
        """Take one object in; returns the key of its LLMQueue."""
        key = key_of(kind, raw)
        if kind is not LLMQUEUES and not is_workers(kind, raw):
            deleted = True  # what is one no more, released by its ReplicaSet, is none of ours
        if kind is LLMQUEUES:
            self._see_queue(key, raw, deleted=deleted)
        elif kind is DEPLOYMENTS:
            self._see_deployment(key, raw, deleted=deleted)
        else:
            self._see_pod(key, raw, deleted=deleted)
        return key

    def uids(self, kind: Kind) -> set[str]:
        """Of all objects of a kind."""
        return set(self.versions(kind))

    def has(self, kind: Kind, raw: Object) -> bool:
        """Whether this very object is known."""
        key, uid = key_of(kind, raw), raw["metadata"]["uid"]
        if kind is PODS:
            return uid in self.pods.get(key, {})
        views = self.queues if kind is LLMQUEUES else self.deployments
        return key in views and views[key].uid == uid

    def replace_all(
        self, kind: Kind, objects: Iterable[Object], *, known: set[str] | None = None
    ) -> set[str]:
        """Take in a full list: what is not in it is gone. Returns the keys that changed.

        `known`: the uids before the list was asked for, see Listing.
        """
        listing = Listing(self, kind, known=known)
        for raw in objects:
            listing.take(raw)
        return listing.end()

    def _see_queue(self, key: str, raw: Object, *, deleted: bool) -> None:
        known, version = self.queues.get(key), raw["metadata"]["resourceVersion"]
        if known is not None and not newer(version, known.version):
            return
        if deleted:
            if known is None or known.uid == raw["metadata"]["uid"]:
                self.queues.pop(key, None)
                self._join(key, None)
            return
        view = queue_view(raw)
        self.queues[key] = view
        self._join(key, budget_id(view.resource) if view.resource else key)

    def is_there(self, view: QueueView) -> bool:
        """Whether this very LLMQueue still is, and is not being deleted."""
        now = self.queues.get(view.key)
        return now is not None and now.uid == view.uid and not now.deleting

    def wrote_status(self, view: QueueView, status: Object) -> None:
        """The watch will bring it; until then the next tick must not write it again."""
        known = self.queues.get(view.key)
        if known is not None and known.uid == view.uid:
            self.queues[view.key] = replace(known, status=status)

    def _see_deployment(self, key: str, raw: Object, *, deleted: bool) -> None:
        known, version = self.deployments.get(key), raw["metadata"]["resourceVersion"]
        if known is not None and not newer(version, known.version):
            return
        if not deleted:
            self.deployments[key] = deployment_view(raw)
        elif known is not None and known.uid == raw["metadata"]["uid"]:
            del self.deployments[key]

    def replace_deployment(self, key: str, raw: Object | None) -> None:
        """After a fresh read, which is right whatever the version."""
        if raw is None:
            self.deployments.pop(key, None)
        else:
            self.deployments[key] = deployment_view(raw)

    def _see_pod(self, key: str, raw: Object, *, deleted: bool) -> None:
        pods = self.pods.setdefault(key, {})
        uid, version = raw["metadata"]["uid"], raw["metadata"]["resourceVersion"]
        known = pods.get(uid)
        if known is not None and not newer(version, known.version):
            return
        state = None if deleted else pod_state(raw)
        if state is not None:
            pods[uid] = state
        else:
            pods.pop(uid, None)
        if not pods:
            del self.pods[key]

    def versions(self, kind: Kind) -> dict[str, tuple[str, str]]:
        """uid → (key, version)"""
        if kind is PODS:
            return {p.uid: (p.key, p.version) for pods in self.pods.values() for p in pods.values()}
        views = self.queues if kind is LLMQUEUES else self.deployments
        return {view.uid: (view.key, view.version) for view in views.values()}

    def drop(self, kind: Kind, uids: set[str]) -> None:
        if kind is LLMQUEUES:
            for key in [key for key, view in self.queues.items() if view.uid in uids]:
                del self.queues[key]
                self._join(key, None)
        elif kind is DEPLOYMENTS:
            for key in [key for key, view in self.deployments.items() if view.uid in uids]:
                del self.deployments[key]
        else:
            for key, pods in list(self.pods.items()):
                kept = {uid: pod for uid, pod in pods.items() if uid not in uids}
                if kept:
                    self.pods[key] = kept
                else:
                    del self.pods[key]

    # ------------------------------------------------------------ budgets

    def _join(self, key: str, budget: str | None) -> None:
        """Move an LLMQueue to a budget; None = it is in none any more."""
        was = self._budgets.get(key)
        if was is not None and was != budget:
            members = self._groups.get(was, set())
            members.discard(key)
            if not members:
                self._groups.pop(was, None)
        if budget is not None:
            self._budgets[key] = budget
            self._groups.setdefault(budget, set()).add(key)

    def budget_of(self, key: str) -> str | None:
        """The budget of an LLMQueue, also of one that is gone; None = never seen."""
        return self._budgets.get(key)

    def forget(self, key: str) -> None:
        """A gone LLMQueue has been put in order."""
        if key not in self.queues:
            self._budgets.pop(key, None)

    def budgets(self) -> list[str]:
        return list(self._groups)

    def members(self, budget: str) -> list[QueueView]:
        """The LLMQueues of a budget, oldest first; not those that are being deleted."""
        views = [self.queues[key] for key in self._groups.get(budget, ())]
        views = [view for view in views if not view.deleting]
        return sorted(views, key=lambda view: (view.created_at, view.key))


class Listing:
    """A full list that is being read, object by object: mark, then sweep.

    What a watch brought or ended since the list was asked for is newer than the list. `known`: the
    uids at that time; None = now.
    """

    def __init__(self, world: World, kind: Kind, *, known: set[str] | None = None) -> None:
        self._world, self._kind = world, kind
        self._before = world.versions(kind)
        self._known = set(self._before) if known is None else known
        self._seen: set[str] = set()

    def take(self, raw: Object) -> None:
        uid = raw["metadata"]["uid"]
        self._seen.add(uid)
        if uid not in self._known or self._world.has(self._kind, raw):
            self._world.observe(self._kind, raw)

    def end(self) -> set[str]:
        """Drop what was not in the list; returns the keys that changed."""
        self._world.drop(self._kind, self._known - self._seen)
        before, after = self._before, self._world.versions(self._kind)
        changed = {uid for uid in before.keys() | after.keys() if before.get(uid) != after.get(uid)}
        return {(after.get(uid) or before[uid])[0] for uid in changed}
