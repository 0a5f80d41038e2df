"""Workers that run and do not reach the store, whatever their probe says."""

from __future__ import annotations

import pytest

from llmqueue_operator.planning import ConditionType, PodPhase, Reason
from llmqueue_operator.planning.workforce import NOT_SEEN_SECONDS, muster
from llmqueue_operator.views import pod_state
from support.clusterobjects import EPOCH_SECONDS
from support.clusterobjects import pod as raw_pod
from unit.planning.builders import beat, condition, group, plan_one, pod, queue_input, seen, store

LONG = NOT_SEEN_SECONDS + 1


@pytest.mark.parametrize("ready", [True, False])
@pytest.mark.parametrize(
    ("phase", "age", "beats", "missed"),
    [
        pytest.param(PodPhase.RUNNING, LONG, [], True, id="never seen"),
        pytest.param(PodPhase.RUNNING, LONG - 2, [], False, id="just started"),
        pytest.param(PodPhase.PENDING, LONG, [], False, id="not started"),
        pytest.param(PodPhase.TERMINATING, LONG, [], False, id="ending"),
        pytest.param(PodPhase.FAILED, LONG, [], False, id="failing: another reason"),
        pytest.param(PodPhase.RUNNING, LONG, [beat("a")], False, id="seen"),
        pytest.param(PodPhase.RUNNING, LONG, [beat("b")], True, id="S18: another one was seen"),
    ],
)
def test_not_seen(phase: PodPhase, age: float, beats: list, ready: bool, missed: bool) -> None:
    """A worker becomes ready by its first answered claim: one that cannot reach the store never is,
    and that is just what is to be told."""
    crew = muster([pod("a", phase, age=age, ready=ready)], beats, blind=False)
    assert [m.pod.uid for m in crew.not_seen] == (["a"] if missed else [])


@pytest.mark.parametrize("ready", [True, False])
def test_it_is_a_condition_and_no_reason_to_grow(ready: bool) -> None:
    """Ten times the work, and no more workers that would not reach the store either."""
    queue = queue_input(pods=[pod("a", age=LONG, ready=ready)])
    made, _ = plan_one(group(queue, store([seen(ready=500)])))
    found = condition(made, ConditionType.WORKERS_AVAILABLE)
    assert (found.status, found.reason) == (False, Reason.WORKERS_NOT_SEEN)
    assert made.target == 1


def test_the_age_counts_from_the_start_of_the_container() -> None:
    """S33: a pod that waited three minutes for a node has not been silent for that long."""
    state = pod_state(raw_pod(created=0, started=180, ready=None))
    assert state is not None
    crew = muster([state.view(EPOCH_SECONDS + 190)], [], blind=False)
    assert crew.not_seen == []
    crew = muster([state.view(EPOCH_SECONDS + 180 + LONG)], [], blind=False)
    assert len(crew.not_seen) == 1
