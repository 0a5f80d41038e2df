"""Raw objects → views."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmqueue_operator.planning import PodPhase
from llmqueue_operator.views import deployment_view, instant, pod_state, queue_view, worker_key
from support.clusterobjects import EPOCH_SECONDS, deployment, llmqueue, pod

PENDING, RUNNING = PodPhase.PENDING, PodPhase.RUNNING
FAILED, TERMINATING = PodPhase.FAILED, PodPhase.TERMINATING


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        pytest.param("2026-01-01T00:00:00Z", EPOCH_SECONDS, id="seconds"),
        pytest.param("2026-01-01T00:00:00.250000Z", EPOCH_SECONDS + 0.25, id="microseconds"),
        pytest.param("2026-01-01T01:00:00+01:00", EPOCH_SECONDS, id="another zone"),
        pytest.param(None, None, id="absent"),
        pytest.param("", None, id="empty"),
    ],
)
def test_instant(text: str | None, seconds: float | None) -> None:
    assert instant(text) == seconds


# ---------------------------------------------------------------- LLMQueues


def test_a_queue() -> None:
    view = queue_view(llmqueue("q", version=7, created=30, status={"desired": 4}))
    assert (view.key, view.uid, view.version, view.generation) == ("default/q", "uid-q", "7", 1)
    assert view.status == {"desired": 4}
    assert view.created_at == EPOCH_SECONDS + 30
    assert view.resource is not None
    assert view.resource.metadata.uid == "uid-q"
    assert (view.problem, view.deleting) == ("", False)


def test_a_queue_that_is_being_deleted() -> None:
    view = queue_view(llmqueue(deleting=True))
    assert view.deleting
    assert view.status == {}


@pytest.mark.parametrize(
    ("sections", "field"),
    [
        pytest.param({"limits": {}}, "limits", id="no limit"),
        pytest.param({"limits": {"requestsPerMinute": 0}}, "requestsPerMinute", id="S35: RPM 0"),
        pytest.param(
            {"scaling": {"minReplicas": 5, "maxReplicas": 2}}, "minReplicas", id="S35: min > max"
        ),
        pytest.param({"hurry": True}, "hurry", id="a field of a newer version"),
        pytest.param({"provider": {"type": "magic"}}, "provider.type", id="unknown provider"),
    ],
)
def test_a_queue_that_cannot_be_read_says_why(sections: dict[str, object], field: str) -> None:
    """S35: what the CRD let through all the same is told, and holds nobody else up."""
    view = queue_view(llmqueue(**sections))
    assert view.resource is None
    assert field in view.problem
    assert view.key == "default/q"


# ---------------------------------------------------------------- Deployments


def test_a_deployment() -> None:
    view = deployment_view(deployment("q", version=9, replicas=4, generation=3))
    assert (view.key, view.name, view.version) == ("default/q", "q-worker", "9")
    assert (view.owner, view.replicas, view.generation) == ("uid-q", 4, 3)
    assert (view.applied, view.foreign_scalers) == ("digest", ())
    assert not view.overdue
    assert not view.deleting


def test_a_deployment_without_replicas_has_one_as_the_server_would_fill_in() -> None:
    assert deployment_view(deployment(replicas=None)).replicas == 1
    assert deployment_view(deployment(replicas=0)).replicas == 0


@pytest.mark.parametrize(
    ("scalers", "foreign"),
    [
        pytest.param(("llmqueue-scaler",), (), id="ours"),
        pytest.param((), (), id="nobody"),
        pytest.param(("kubectl", "llmqueue-scaler"), ("kubectl",), id="S22: by hand"),
        pytest.param(("hpa", "argo", "hpa"), ("argo", "hpa"), id="S21: several, each once"),
    ],
)
def test_who_else_writes_the_replicas(scalers: tuple[str, ...], foreign: tuple[str, ...]) -> None:
    """S21, S22."""
    assert deployment_view(deployment(scalers=scalers)).foreign_scalers == foreign


def test_a_create_that_was_cut_off_is_not_taken_as_applied() -> None:
    """The first of the two applies of a creation carries the digest too; the second completes it."""
    raw = deployment()
    managed = raw["metadata"]["managedFields"]
    raw["metadata"]["managedFields"] = [e for e in managed if e["manager"] != "llmqueue"]
    assert deployment_view(raw).applied == ""


@pytest.mark.parametrize(
    ("conditions", "overdue"),
    [
        pytest.param([], False, id="none"),
        pytest.param(
            [{"type": "Progressing", "reason": "ProgressDeadlineExceeded"}], True, id="over"
        ),
        pytest.param([{"type": "Progressing", "reason": "ReplicaSetUpdated"}], False, id="going"),
        pytest.param(
            [{"type": "Available", "reason": "ProgressDeadlineExceeded"}], False, id="another type"
        ),
    ],
)
def test_a_rollout_past_its_deadline(conditions: list[dict[str, str]], overdue: bool) -> None:
    assert deployment_view(deployment(conditions=conditions)).overdue is overdue


def test_only_the_controller_owns() -> None:
    raw = deployment()
    raw["metadata"]["ownerReferences"].insert(0, {"uid": "friend"})
    assert deployment_view(raw).owner == "uid-q"
    assert deployment_view(deployment(owner="")).owner == ""


# ---------------------------------------------------------------- pods


@pytest.mark.parametrize(
    ("raw", "phase", "trouble"),
    [
        pytest.param(pod(), RUNNING, "", id="running"),
        pytest.param(pod(ready=None), RUNNING, "", id="running, not ready yet"),
        pytest.param(pod(started=None, ready=None), PENDING, "", id="not started"),
        pytest.param(pod(ready=None, waiting="ContainerCreating"), PENDING, "", id="being created"),
        pytest.param(
            pod(ready=None, waiting="ImagePullBackOff"), FAILED, "ImagePullBackOff", id="no image"
        ),
        pytest.param(
            pod(ready=None, waiting="CreateContainerConfigError"),
            FAILED,
            "CreateContainerConfigError",
            id="no Secret",
        ),
        pytest.param(
            pod(ready=None, waiting="CrashLoopBackOff", restarts=1),
            FAILED,
            "CrashLoopBackOff",
            id="crash-looping",
        ),
        pytest.param(
            pod(ready=None, restarts=2), FAILED, "CrashLoopBackOff", id="up again between crashes"
        ),
        pytest.param(pod(ready=None, restarts=1), RUNNING, "", id="crashed once"),
        pytest.param(pod(restarts=9), RUNNING, "", id="crashed long ago, ready since"),
        pytest.param(pod(deleting=True), TERMINATING, "", id="ending"),
        pytest.param(
            pod(deleting=True, ready=None, waiting="ErrImagePull"),
            TERMINATING,
            "ErrImagePull",
            id="ending without having started",
        ),
        pytest.param(pod(deleting=True, phase="Succeeded"), TERMINATING, "", id="ended, not gone"),
        pytest.param(
            pod(
                started=None,
                ready=None,
                initContainerStatuses=[
                    {"name": "init", "state": {"waiting": {"reason": "ErrImagePull"}}}
                ],
            ),
            FAILED,
            "ErrImagePull",
            id="an init container's image",
        ),
    ],
)
def test_phase(raw: dict[str, object], phase: PodPhase, trouble: str) -> None:
    state = pod_state(raw)
    assert state is not None
    assert (state.phase, state.trouble) == (phase, trouble)


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_an_ended_pod_is_none(phase: str) -> None:
    """An evicted pod stays as an object; its ReplicaSet has replaced it."""
    assert pod_state(pod(phase=phase)) is None


def test_a_pod() -> None:
    state = pod_state(pod("a", version=3, created=10, started=20, ready=25, template="t9"))
    assert state is not None
    assert (state.key, state.name, state.uid, state.version) == ("default/q", "pod-a", "a", "3")
    assert (state.ready, state.template, state.deletion_cost) == (True, "t9", 0)
    assert state.created_at == EPOCH_SECONDS + 10
    assert state.started_at == EPOCH_SECONDS + 20
    assert state.ready_at == EPOCH_SECONDS + 25


def test_a_pod_that_is_not_ready_has_no_time_of_readiness() -> None:
    state = pod_state(pod(ready=None))
    assert state is not None
    assert (state.ready, state.ready_at) == (False, None)


@pytest.mark.parametrize(
    ("cost", "read"), [(None, 0), ("-1000", -1000), ("7", 7), ("much", 0), ("", 0)]
)
def test_deletion_cost(cost: str | None, read: int) -> None:
    state = pod_state(pod(cost=cost))
    assert state is not None
    assert state.deletion_cost == read


@pytest.mark.parametrize(
    ("fields", "age"),
    [
        pytest.param({"created": 0, "started": 40}, 60.0, id="since its container runs"),
        pytest.param({"created": 10, "started": None, "ready": None}, 90.0, id="since created"),
        pytest.param({"created": 0, "started": 200}, 0.0, id="another clock: never negative"),
    ],
)
def test_the_planner_s_view_of_a_pod(fields: dict[str, float | None], age: float) -> None:
    state = pod_state(pod("a", **fields))  # type: ignore[arg-type]
    assert state is not None
    view = state.view(EPOCH_SECONDS + 100)
    assert (view.uid, view.name, view.age_seconds) == ("a", "pod-a", age)
    assert (view.phase, view.ready) == (state.phase, state.ready)


def test_whose_worker() -> None:
    assert worker_key(pod(queue="b", namespace="team")) == "team/b"
    assert worker_key({"metadata": {"namespace": "team"}}) == "team/"


@given(
    gone=st.sets(st.sampled_from(["phase", "conditions", "containerStatuses"])), empty=st.booleans()
)
def test_a_young_pod_has_next_to_no_status(gone: set[str], empty: bool) -> None:
    raw = pod(started=None, ready=None)
    for name in gone:
        if empty and name != "phase":
            raw["status"][name] = []
        else:
            del raw["status"][name]
    state = pod_state(raw)
    assert state is not None
    assert (state.phase, state.ready) == (PENDING, False)
    del raw["status"]
    assert pod_state(raw) == state


@pytest.mark.parametrize("editors", [(), ("kubectl-edit",), ("kubectl-edit", "argocd")])
def test_who_else_owns_something_of_the_template(editors: tuple[str, ...]) -> None:
    view = deployment_view(deployment(editors=editors, scalers=("llmqueue-scaler", "hpa")))
    assert view.foreign_editors == tuple(sorted(editors))
    assert view.foreign_scalers == ("hpa",)
