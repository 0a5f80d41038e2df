"""The cluster as last seen."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmqueue_operator.kube.kinds import DEPLOYMENTS, LLMQUEUES, PODS, Kind
from llmqueue_operator.world import World, key_of, newer
from support.clusterobjects import deployment, llmqueue, pod

SHARED = {"limits": {"requestsPerMinute": 60, "sharedBudget": {"name": "team"}}}
KEY = "default/q"


def shown(world: World, kind: Kind) -> set[str]:
    """uids of a kind."""
    if kind is PODS:
        return {uid for pods in world.pods.values() for uid in pods}
    views: Any = world.queues if kind is LLMQUEUES else world.deployments
    return {view.uid for view in views.values()}


def made(kind: Kind, **fields: Any) -> dict[str, Any]:
    return {LLMQUEUES: llmqueue, DEPLOYMENTS: deployment, PODS: pod}[kind](**fields)


KINDS = pytest.mark.parametrize("kind", [LLMQUEUES, DEPLOYMENTS, PODS], ids=lambda k: k.plural)


@pytest.mark.parametrize(
    ("version", "than", "later"),
    [
        pytest.param("10", "9", True, id="as numbers, not as text"),
        pytest.param("9", "10", False, id="older"),
        pytest.param("10", "10", False, id="the same"),
        pytest.param("b", "a", True, id="no numbers: as it comes"),
        pytest.param("a", "b", True, id="no numbers, the other way round"),
    ],
)
def test_newer(version: str, than: str, later: bool) -> None:
    assert newer(version, than) is later


@KINDS
def test_the_key_is_that_of_the_queue(kind: Kind) -> None:
    assert key_of(kind, made(kind)) == KEY
    assert World().observe(kind, made(kind)) == KEY


@KINDS
def test_an_older_version_never_replaces_a_newer_one(kind: Kind) -> None:
    """A list that was read before the watch's last event comes in after it."""
    world = World()
    world.observe(kind, made(kind, version=10))
    before = (
        dict(world.queues),
        dict(world.deployments),
        {k: dict(v) for k, v in world.pods.items()},
    )
    world.observe(kind, made(kind, version=9))
    world.observe(kind, made(kind, version=9), deleted=True)
    assert (world.queues, world.deployments, world.pods) == before


@KINDS
def test_deleted(kind: Kind) -> None:
    world = World()
    world.observe(kind, made(kind, version=1))
    assert len(shown(world, kind)) == 1
    world.observe(kind, made(kind, version=2), deleted=True)
    assert shown(world, kind) == set()
    assert world.pods == {}


@pytest.mark.parametrize("kind", [LLMQUEUES, DEPLOYMENTS], ids=lambda k: k.plural)
def test_the_deletion_of_a_namesake_of_before(kind: Kind) -> None:
    """Deleted and made anew under the same name: the old one's end is not the new one's."""
    world = World()
    young, old = made(kind, version=5), made(kind, version=6)
    old["metadata"]["uid"] = "old"
    world.observe(kind, young)
    world.observe(kind, old, deleted=True)
    assert shown(world, kind) == {young["metadata"]["uid"]}


def test_a_pod_that_has_ended_is_not_counted() -> None:
    world = World()
    world.observe(PODS, pod("a", version=1))
    world.observe(PODS, pod("b", version=1))
    world.observe(PODS, pod("a", version=2, phase="Failed"))
    assert set(world.pods[KEY]) == {"b"}


@KINDS
def test_a_full_list_sweeps(kind: Kind) -> None:
    """kopf re-lists after a 410 without saying what is gone."""
    world = World()
    kept, changed, gone, new = (
        made(kind, **({"name": n} if kind is not DEPLOYMENTS else {"queue": n}), version=3)
        for n in ("kept", "changed", "gone", "new")
    )
    for raw in (kept, changed, gone):
        world.observe(kind, raw)
    changed = {**changed, "metadata": {**changed["metadata"], "resourceVersion": "4"}}
    keys = world.replace_all(kind, [kept, changed, new])
    uids = [each["metadata"]["uid"] for each in (kept, changed, new)]
    assert shown(world, kind) == set(uids)
    assert keys == {key_of(kind, each) for each in (changed, gone, new)}
    assert world.replace_all(kind, [kept, changed, new]) == set()


@KINDS
def test_what_the_watch_brought_during_a_list_is_not_swept(kind: Kind) -> None:
    """A list takes a while; an object made meanwhile is not in it, and is not gone."""
    world = World()
    known = world.uids(kind)
    world.observe(kind, made(kind, version=5))
    assert world.replace_all(kind, [], known=known) == set()
    assert len(shown(world, kind)) == 1


@KINDS
def test_what_the_watch_ended_during_a_list_does_not_come_back(kind: Kind) -> None:
    world = World()
    raw = made(kind, version=5)
    world.observe(kind, raw)
    known = world.uids(kind)
    world.observe(kind, made(kind, version=6), deleted=True)
    world.replace_all(kind, [raw], known=known)
    assert shown(world, kind) == set()


@given(
    st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), st.booleans()), max_size=30),
    st.randoms(use_true_random=False),
)
def test_any_order_of_list_and_watch_ends_the_same(
    history: list[tuple[str, bool]], random: Any
) -> None:
    """Each object's last version counts, wherever older ones are mixed in before the last."""
    events = [(name, version, gone) for version, (name, gone) in enumerate(history, start=1)]
    last = {name: (version, gone) for name, version, gone in events}
    noise = [(n, v, False) for n, v, gone in events if not gone and last[n][0] != v]
    random.shuffle(noise)
    world = World()
    for name, version, gone in [*events, *[e for e in noise if not last[e[0]][1]]]:
        world.observe(PODS, pod(name, version=version), deleted=gone)
    alive = {name for name, (_, gone) in last.items() if not gone}
    assert shown(world, PODS) == alive
    seen = {uid: state.version for pods in world.pods.values() for uid, state in pods.items()}
    assert seen == {name: str(last[name][0]) for name in alive}


# ---------------------------------------------------------------- Deployments read afresh


def test_a_fresh_read_is_right_whatever_its_version() -> None:
    world = World()
    world.observe(DEPLOYMENTS, deployment(version=9, replicas=1))
    world.replace_deployment(KEY, deployment(version=8, replicas=2))
    assert world.deployments[KEY].replicas == 2
    world.replace_deployment(KEY, None)
    world.replace_deployment(KEY, None)
    assert world.deployments == {}


# ---------------------------------------------------------------- status


def test_a_status_that_was_written_is_known_before_the_watch_brings_it() -> None:
    world = World()
    world.observe(LLMQUEUES, llmqueue(version=1, status={"desired": 1}))
    world.wrote_status(world.queues[KEY], {"desired": 2})
    assert world.queues[KEY].status == {"desired": 2}
    world.observe(LLMQUEUES, llmqueue(version=2, status={"desired": 3}))
    assert world.queues[KEY].status == {"desired": 3}


def test_a_status_of_a_namesake_of_before_is_not_the_new_one_s() -> None:
    world = World()
    world.observe(LLMQUEUES, llmqueue(uid="old", version=1))
    old = world.queues[KEY]
    world.observe(LLMQUEUES, llmqueue(uid="new", version=2))
    world.wrote_status(old, {"desired": 2})
    assert world.queues[KEY].status == {}
    world.observe(LLMQUEUES, llmqueue(uid="new", version=3), deleted=True)
    world.wrote_status(old, {"desired": 2})
    assert world.queues == {}


# ---------------------------------------------------------------- budgets


def test_a_queue_has_a_budget_of_its_own_or_shares_one() -> None:
    world = World()
    world.observe(LLMQUEUES, llmqueue("q"))
    world.observe(LLMQUEUES, llmqueue("b", created=2, **SHARED))
    world.observe(LLMQUEUES, llmqueue("a", created=3, **SHARED))
    world.observe(LLMQUEUES, llmqueue("a", namespace="other", uid="o", **SHARED))
    assert set(world.budgets()) == {"default/q", "default/~team", "other/~team"}
    assert [view.key for view in world.members("default/~team")] == ["default/b", "default/a"]
    assert world.budget_of("default/b") == "default/~team"
    assert world.budget_of("default/never") is None
    assert world.members("default/never") == []


def test_members_that_are_being_deleted_do_not_take_part() -> None:
    """Its weight goes at once."""
    world = World()
    world.observe(LLMQUEUES, llmqueue("a", **SHARED))
    world.observe(LLMQUEUES, llmqueue("b", **SHARED, deleting=True))
    assert [view.key for view in world.members("default/~team")] == ["default/a"]


def test_the_budget_of_a_gone_queue_is_known_until_it_is_forgotten() -> None:
    world = World()
    world.observe(LLMQUEUES, llmqueue(version=1))
    world.forget(KEY)
    assert world.budget_of(KEY) == KEY, "it is still there"
    world.observe(LLMQUEUES, llmqueue(version=2), deleted=True)
    assert world.budgets() == []
    assert world.budget_of(KEY) == KEY
    world.forget(KEY)
    assert world.budget_of(KEY) is None


def test_made_anew_on_another_budget() -> None:
    """A shared budget is immutable, but a namesake may be made on another one."""
    world = World()
    world.observe(LLMQUEUES, llmqueue(version=1, **SHARED))
    world.observe(LLMQUEUES, llmqueue("b", version=1, **SHARED))
    world.observe(LLMQUEUES, llmqueue(uid="new", version=2))
    assert world.budget_of(KEY) == KEY
    assert [view.key for view in world.members("default/~team")] == ["default/b"]
    world.replace_all(LLMQUEUES, [llmqueue(uid="new", version=2)])
    assert world.budgets() == [KEY]


def test_a_queue_that_cannot_be_read_is_reported_under_its_own_name() -> None:
    world = World()
    world.observe(LLMQUEUES, llmqueue(version=1, **SHARED))
    world.observe(LLMQUEUES, llmqueue(version=2, limits={}))
    assert world.budgets() == [KEY]
    assert [view.resource for view in world.members(KEY)] == [None]


# ---------------------------------------------------------------- labels that others copied


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(pod(replicaset=""), id="nobody's"),
        pytest.param(pod(replicaset="debug-abc"), id="another Deployment's"),
        pytest.param(pod(replicaset="q-worker"), id="a ReplicaSet of no Deployment"),
        pytest.param(pod(replicaset="q-workers-abc"), id="a longer name"),
        pytest.param(pod(queue="q", replicaset="b-worker-abc"), id="another queue's"),
    ],
)
def test_a_pod_that_only_carries_the_label(raw: dict[str, Any]) -> None:
    """Counted as a worker, it would make the operator ask for one less, or end a busy one."""
    world = World()
    assert world.observe(PODS, raw) == KEY
    assert world.replace_all(PODS, [raw]) == set()
    assert world.pods == {}


def test_a_deployment_that_only_carries_the_label() -> None:
    """A copy made by hand under another name must not hide the real one, nor its end end it."""
    world = World()
    copy = deployment(name="q-worker-copy", uid="copy", version=9)
    world.observe(DEPLOYMENTS, copy)
    assert world.deployments == {}
    world.observe(DEPLOYMENTS, deployment(version=5))
    world.observe(DEPLOYMENTS, copy)
    world.observe(DEPLOYMENTS, copy, deleted=True)
    world.replace_all(DEPLOYMENTS, [copy, deployment(version=5)])
    assert shown(world, DEPLOYMENTS) == {"uid-deployment-q"}


def test_a_pod_that_its_replicaset_has_released() -> None:
    """Taken out for a closer look, by a label: it is no worker any more, but keeps the queue's."""
    world = World()
    world.observe(PODS, pod("a", version=1))
    world.observe(PODS, pod("b", version=1))
    world.observe(PODS, pod("a", version=2, replicaset=""))
    assert set(world.pods[KEY]) == {"b"}
    world.observe(PODS, pod("b", version=3, replicaset=""), deleted=True)
    assert world.pods == {}
