import pytest

from llmqueue_operator.planning import PodPhase
from llmqueue_operator.planning.victims import dismiss
from llmqueue_operator.planning.workforce import muster
from unit.planning.builders import beat, crew, pod, queue_input


def choose(pods, workers, target, **facts):
    return dismiss(queue_input(pods=pods, **facts), muster(pods, workers, blind=False), target)


def test_ten_workers_with_long_jobs_become_three_without_killing():
    """S1: 7 take nothing new and leave as they finish; none is removed while busy."""
    pods, workers = crew(busy=10)
    first = choose(pods, workers, 3)
    assert len(first.mark) == 7
    assert (first.remove, first.replicas, first.draining) == ((), 10, 7)
    marked = set(first.mark)
    workers = [
        beat(w.worker.partition(":")[0], in_flight=1, remaining=90, drain=29)
        if w.worker in marked else w
        for w in workers
    ]  # fmt: skip
    done = next(w for w in workers if w.worker in marked)
    uid = done.worker.partition(":")[0]
    workers = [beat(uid, drain=29) if w is done else w for w in workers]
    then = choose(pods, workers, 3)
    assert (then.remove, then.replicas) == ((uid,), 9)
    assert set(then.mark) == marked


def test_the_idle_one_goes():
    """S5: A busy, B idle, A newest; demand 1: B goes."""
    pods = [pod("A", age=1), pod("B", age=500)]
    workers = [beat("A", in_flight=1, remaining=0.1), beat("B")]
    first = choose(pods, workers, 1)
    assert (first.mark, first.remove, first.replicas) == (("B:1",), (), 2)
    then = choose(pods, [workers[0], beat("B", drain=29)], 1)
    assert (then.remove, then.replicas) == (("B",), 1)


def test_one_that_got_work_meanwhile_goes_back_behind_an_idle_one():
    pods = [pod("A"), pod("B")]
    got_work = beat("A", in_flight=1, remaining=8, drain=29)
    again = choose(pods, [got_work, beat("B")], 1)
    assert (again.mark, again.unmark, again.remove) == (("B:1",), ("A:1",), ())


def test_twenty_mixed_to_twelve_goes_to_fifteen_first():
    """S7: 20 workers mixed, 20 to 12, 5 idle: to 15 first."""
    pods, workers = crew(busy=15, idle=5)
    first = choose(pods, workers, 12)
    assert len(first.mark) == 8
    assert first.replicas == 20
    busy, idle = [w for w in workers if w.in_flight], [w for w in workers if not w.in_flight]
    drained = [beat(w.worker.partition(":")[0], drain=29) for w in idle]
    going = [
        beat(w.worker.partition(":")[0], in_flight=1, remaining=9, drain=29)
        if w.worker in first.mark else w
        for w in busy
    ]  # fmt: skip
    then = choose(pods, [*going, *drained], 12)
    assert set(then.remove) == {f"i{i}" for i in range(5)}
    assert then.replicas == 15


def test_least_remaining_work_goes_first():
    pods, workers = crew(busy=5)
    assert choose(pods, workers, 3).mark == ("b0:1", "b1:1")


def test_a_marked_busy_worker_stays_the_choice():
    pods, workers = crew(busy=3)
    workers[2] = beat("b2", in_flight=1, remaining=60, drain=20)
    assert choose(pods, workers, 2).mark == ("b2:1",)


def test_pending_pods_go_first_failed_before_young_before_old():
    """S33: Pending pods are the first to go, and need no mark."""
    pods, workers = crew(busy=2, idle=1)
    pods += [
        pod("old", PodPhase.PENDING, age=50),
        pod("young", PodPhase.PENDING, age=2),
        pod("broken", PodPhase.FAILED, age=500),
    ]
    assert choose(pods, workers, 5).remove == ("broken",)
    assert choose(pods, workers, 4).remove == ("broken", "young")
    three = choose(pods, workers, 3)
    assert (set(three.remove), three.mark) == ({"broken", "young", "old"}, ())


def test_another_pod_turns_not_ready():
    """S6: victim A is marked, B is lost: B goes in its place, and nothing is removed twice."""
    pods = [pod("A"), pod("B", PodPhase.PENDING, ready=False), pod("C")]
    workers = [beat("A", drain=29), beat("C", in_flight=1)]
    made = choose(pods, workers, 2)
    assert (made.remove, made.unmark, made.replicas) == (("B",), ("A:1",), 2)
    gone = [pod("A"), pod("B", PodPhase.TERMINATING), pod("C")]
    after = choose(gone, [beat("A"), workers[1]], 2)
    assert (after.remove, after.mark, after.unmark, after.replicas) == ((), (), (), 2)


def test_no_lower_count_while_a_busy_pod_is_not_ready():
    """A ReplicaSet would end the busy pod that is not ready instead of the marked idle one."""
    pods = [pod("A"), pod("B", ready=False)]
    made = choose(pods, [beat("A", drain=29), beat("B", in_flight=1)], 1)
    assert (made.remove, made.replicas, made.mark) == ((), 2, ("A:1",))


def test_an_idle_pod_that_is_not_ready_goes_before_a_ready_one():
    pods = [pod("A"), pod("B", ready=False)]
    assert choose(pods, [beat("A"), beat("B")], 1).mark == ("B:1",)


@pytest.mark.parametrize(
    ("drain", "removed"), [(0.0, ()), (4.0, ()), (5.0, ("A",)), (30.0, ("A",))]
)
def test_a_mark_must_be_read_back_and_outlive_the_removal(drain, removed):
    made = choose([pod("A")], [beat("A", drain=drain)], 0)
    assert (made.remove, made.mark) == (removed, ("A:1",))


def test_a_silent_worker_is_marked_but_not_removed():
    made = choose([pod("A")], [beat("A", age=15, drain=20)], 0)
    assert (made.mark, made.remove, made.replicas) == (("A:1",), (), 1)


def test_marks_are_lifted_when_demand_returns():
    pods, workers = crew(busy=2, idle=1, drain=20)
    made = choose(pods, workers, 3)
    assert made.unmark == ("b0:1", "b1:1", "i0:1")
    assert (made.mark, made.remove, made.replicas) == ((), (), 3)


def test_the_busiest_mark_is_lifted_first():
    pods, workers = crew(busy=1, idle=1, drain=20)
    made = choose(pods, workers, 1)
    assert (made.unmark, made.remove) == (("b0:1",), ("i0",))


@pytest.mark.parametrize(
    ("target", "pending", "removed", "replicas"),
    [
        pytest.param(4, 0, 0, 4, id="nothing to lower"),
        pytest.param(2, 0, 0, 4, id="running pods stay"),
        pytest.param(2, 1, 1, 3, id="pending ones may go"),
        pytest.param(4, 1, 0, 4, id="the surge is not an excess"),
        pytest.param(6, 0, 0, 6, id="up is never delayed"),
    ],
)
def test_during_a_rollout(target, pending, removed, replicas):
    pods, workers = crew(busy=2, idle=2, pending=pending, drain=9)
    made = choose(pods, workers, target, rolling=True, replicas=4)
    assert (len(made.remove), made.replicas, made.mark) == (removed, replicas, ())
    assert len(made.unmark) == 4
