import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmqueue.config import Limit
from llmqueue.states import LimitUnit
from llmqueue_operator.planning import BoundBy, Memory, QueueMemory, plan
from llmqueue_operator.planning.shares import Claimant, shares, water_fill
from unit.planning.builders import group, queue_input, rpm, seen, spec, store


@pytest.mark.parametrize(
    ("capacity", "wants", "weights", "given_"),
    [
        pytest.param(600, [1e9, 1e9], [2, 1], [400, 200], id="S46 both busy"),
        pytest.param(600, [0, 1e9], [2, 1], [0, 600], id="S46 one idle: lent"),
        pytest.param(600, [100, 1e9], [2, 1], [100, 500], id="one wants little"),
        pytest.param(600, [100, 150, 1e9], [1, 1, 1], [100, 150, 350], id="two rounds"),
        pytest.param(600, [100, 200], [1, 1], [100, 200], id="enough for all"),
        pytest.param(600, [], [], [], id="nobody"),
    ],
)
def test_water_filling(capacity, wants, weights, given_):
    claimants = [Claimant(want, weight) for want, weight in zip(wants, weights, strict=True)]
    assert water_fill(capacity, claimants) == pytest.approx(given_)


claimants_ = st.lists(
    st.builds(Claimant, wants=st.floats(0, 1e4), weight=st.integers(1, 10)), min_size=1, max_size=6
)


@given(capacity=st.floats(0.1, 1e4), claimants=claimants_, more=st.floats(0, 1e3))
def test_no_more_is_given_than_there_is_and_more_capacity_never_gives_less(
    capacity, claimants, more
):
    filled = water_fill(capacity, claimants)
    assert sum(filled) <= capacity * (1 + 1e-9)
    assert all(given <= c.wants * (1 + 1e-9) for given, c in zip(filled, claimants, strict=True))
    before, after = shares(capacity, claimants), shares(capacity + more, claimants)
    assert all(b <= a + 1e-6 for b, a in zip(before, after, strict=True))


@given(capacity=st.floats(0.1, 1e4), wants=st.floats(0, 1e4))
def test_a_queue_alone_has_all(capacity, wants):
    assert shares(capacity, [Claimant(wants, 3)]) == [pytest.approx(capacity)]


def two_queues(a_ready, b_ready, **facts):
    queues = [
        queue_input(spec(), queue="default/a", weight=2, replicas=0),
        queue_input(spec(), queue="default/b", weight=1, replicas=0),
    ]
    state = store([seen("default/a", ready=a_ready), seen("default/b", ready=b_ready)])
    memory = Memory(epoch="e1", queues={q.queue: QueueMemory() for q in queues})
    return plan(group(queues, state, **facts), memory, 0.0)


def test_two_busy_queues_share_by_weight():
    """S46: 600 RPM, weights 2:1, both busy: 400 and 200, together no more than 600."""
    made = two_queues(10_000, 10_000, limits=[rpm(600)])
    rates = [q.effective_rpm for q in made.queues]
    assert rates == pytest.approx([400 * 60 / 61, 200 * 60 / 61])
    assert [q.bound_by for q in made.queues] == [BoundBy.SHARE, BoundBy.SHARE]


def test_an_idle_share_is_lent_within_a_tick():
    """S46: the other queue is idle: all of it."""
    busy, idle = two_queues(10_000, 0, limits=[rpm(600)]).queues
    assert busy.effective_rpm == pytest.approx(600 * 60 / 61)
    assert busy.bound_by is BoundBy.REQUESTS_PER_MINUTE
    assert idle.wish == 0


def test_in_flight_is_shared_by_weight_too():
    """S46: max in flight of the budget."""
    made = two_queues(1000, 1000, limits=[rpm(60_000)], max_in_flight=30)
    assert [q.wish for q in made.queues] == [20, 10]
    assert {q.bound_by for q in made.queues} == {BoundBy.SHARE}


def test_a_token_limit_binds_each_queue_by_its_own_charge():
    tokens = Limit(LimitUnit.TOKENS, 61_000)
    queues = [queue_input(queue="default/a", expected_charge={"tokens": 1000.0}, replicas=0)]
    state = store([seen("default/a", ready=1000)])
    made = plan(group(queues, state, limits=[rpm(600), tokens]), Memory(), 0.0)
    assert made.queues[0].bound_by is BoundBy.TOKENS
    assert made.queues[0].effective_rpm == pytest.approx(60.0)
