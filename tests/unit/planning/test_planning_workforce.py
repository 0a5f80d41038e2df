import pytest

from llmqueue_operator.planning import PodPhase
from llmqueue_operator.planning.workforce import Standing, muster
from unit.planning.builders import beat, pod

PENDING, RUNNING = PodPhase.PENDING, PodPhase.RUNNING
FAILED, TERMINATING = PodPhase.FAILED, PodPhase.TERMINATING


@pytest.mark.parametrize(
    ("phase", "heartbeat", "blind", "standing"),
    [
        pytest.param(RUNNING, beat("a"), False, Standing.IDLE, id="idle"),
        pytest.param(RUNNING, beat("a", in_flight=2), False, Standing.BUSY, id="busy"),
        pytest.param(RUNNING, beat("a", age=11), False, Standing.SILENT, id="stale: not idle"),
        pytest.param(
            RUNNING, beat("a", age=99, in_flight=1), False, Standing.SILENT, id="stale with leases"
        ),
        pytest.param(RUNNING, beat("a", age=31), False, Standing.COMING, id="lost for 30 s"),
        pytest.param(RUNNING, beat("a", age=31), True, Standing.SILENT, id="lost in an outage"),
        pytest.param(RUNNING, None, False, Standing.COMING, id="running, never seen"),
        pytest.param(RUNNING, None, True, Standing.SILENT, id="not seen since the outage"),
        pytest.param(PENDING, None, True, Standing.COMING, id="pending"),
        pytest.param(PENDING, beat("a", in_flight=1), False, Standing.BUSY, id="not ready, busy"),
        pytest.param(PENDING, beat("a"), False, Standing.IDLE, id="not ready, idle"),
        pytest.param(PENDING, beat("a", age=20), False, Standing.COMING, id="gone from its node"),
        pytest.param(FAILED, beat("a"), False, Standing.COMING, id="crash-looping"),
        pytest.param(FAILED, beat("a", in_flight=1), False, Standing.BUSY, id="failing, busy"),
        pytest.param(TERMINATING, beat("a", in_flight=1), False, Standing.LEAVING, id="ending"),
    ],
)
def test_standing(phase, heartbeat, blind, standing):
    (member,) = muster([pod("a", phase)], [heartbeat] if heartbeat else [], blind=blind).members
    assert member.standing is standing


def test_heartbeats_without_a_pod_are_no_capacity():
    """S18: heartbeats of dead pods are not counted."""
    crew = muster([pod("a")], [beat("a"), beat("dead"), beat("gone", in_flight=1)], blind=False)
    assert crew.taking_jobs == 1
    assert [m.pod.uid for m in crew.members] == ["a"]
    assert crew.draining_in_flight == 0


def test_the_youngest_heartbeat_of_a_pod_counts():
    """S18: a worker that was started anew in place has two nonces for a while."""
    crew = muster(
        [pod("a")],
        [beat("a", nonce="old", in_flight=1, age=8), beat("a", nonce="new", age=1)],
        blind=False,
    )
    (member,) = crew.members
    assert member.beat.worker == "a:new"
    assert member.standing is Standing.IDLE


def test_who_takes_jobs_and_whose_calls_drain():
    crew = muster(
        [pod("a"), pod("b"), pod("c"), pod("d", TERMINATING), pod("e", PENDING)],
        [
            beat("a", in_flight=1),
            beat("b", in_flight=2, drain=20),
            beat("c"),
            beat("d", in_flight=3),
        ],
        blind=False,
    )
    assert crew.taking_jobs == 2
    assert crew.leaving_in_flight == 3
    assert crew.draining_in_flight == 5
    assert len(crew.present) == 4


@pytest.mark.parametrize(
    ("view", "missed"),
    [
        pytest.param(pod("a", RUNNING, age=31), True, id="ready for 31 s"),
        pytest.param(pod("a", RUNNING, age=29), False, id="just started"),
        pytest.param(pod("a", RUNNING, age=99, ready=False), True, id="not ready either"),
        pytest.param(pod("a", PENDING, age=99), False, id="pending"),
    ],
)
def test_not_seen(view, missed):
    assert bool(muster([view], [], blind=False).not_seen) is missed
