from dataclasses import replace

import pytest

from llmqueue.config import Limit
from llmqueue.states import LimitUnit
from llmqueue_operator.planning import QueueMemory
from llmqueue_operator.planning.history import observe
from unit.planning.builders import group, plan_one, queue_input, remembering, seen, spec, store

QUEUE_INPUT = queue_input(spec())


def watch(memory, snapshots, start=0.0):
    history = None
    for tick, snapshot in enumerate(snapshots):
        history, memory = observe(QUEUE_INPUT, memory, snapshot, start + tick)
    return history, memory


@pytest.mark.parametrize(
    ("grants", "busy_ms", "w"),
    [
        pytest.param(0, 0, 8.0, id="nothing seen: expectedCallSeconds"),
        pytest.param(5, 15_000, 95 / 15, id="5 s in: running calls count from their first second"),
        pytest.param(100, 1_200_000, (80 + 1200) / 110, id="ten grants of prior"),
    ],
)
def test_slot_time_per_grant(grants, busy_ms, w):
    history, _ = watch(QueueMemory(), [seen(grants=grants, busy_ms=busy_ms)])
    assert history.slot_seconds == pytest.approx(w)


def test_after_a_change_of_call_length_w_follows_within_400_grants():
    memory = QueueMemory()
    calls = [seen(grants=g, busy_ms=g * 8000) for g in range(0, 1001, 10)]
    calls += [seen(grants=1000 + g, busy_ms=8_000_000 + g * 2000) for g in range(10, 411, 10)]
    history, _ = watch(memory, calls)
    assert history.slot_seconds == pytest.approx(2.0, abs=0.3)


def test_the_base_is_always_at_least_200_grants_old():
    memory = QueueMemory()
    for grants in range(0, 2000, 7):
        _, memory = watch(memory, [seen(grants=grants, busy_ms=grants * 8000)])
        if grants > 200:
            assert 200 <= grants - memory.base_grants < 420


def test_a_restart_with_known_w_continues_where_it_was():
    """S34: W, charges and base stand as if nothing had happened."""
    memory = QueueMemory(slot_seconds=5.0)
    charged = {"requests": 1000, "tokens": 4_000_000}
    history, memory = watch(memory, [seen(grants=1000, busy_ms=9_000_000, charged=charged)])
    assert history.slot_seconds == pytest.approx(5.0)
    assert history.charge["tokens"] == pytest.approx(4000.0)
    later = seen(grants=1100, busy_ms=9_500_000, charged={"tokens": 4_400_000})
    assert watch(memory, [later])[0].slot_seconds == pytest.approx(5.0)


def test_counters_that_began_anew_keep_the_last_w():
    memory = QueueMemory(
        slot_seconds=5.0, based=True, base_grants=400, next_grants=600, base_busy_ms=2_000_000
    )
    history, memory = watch(memory, [seen(grants=0, busy_ms=0)])
    assert history.slot_seconds == 5.0
    assert (memory.base_grants, memory.next_grants) == (0, 0)


@pytest.mark.parametrize(
    ("charged", "grants", "expected", "charge"),
    [
        pytest.param({}, 0, {}, {"requests": 1.0}, id="nothing known but one request a grant"),
        pytest.param({}, 0, {"tokens": 50.0}, {"requests": 1.0, "tokens": 50.0}, id="declared"),
        pytest.param(
            {"requests": 30, "tokens": 3000}, 30, {"tokens": 500.0},
            {"requests": 1.0, "tokens": 200.0, "input_tokens": 0.0, "output_tokens": 0.0},
            id="declared weighs ten grants",
        ),
        pytest.param(
            {"requests": 60, "tokens": 3000}, 30, {},
            {"requests": 1.75, "tokens": 100.0, "input_tokens": 0.0, "output_tokens": 0.0},
            id="several requests a grant",
        ),
    ],
)  # fmt: skip
def test_expected_charge_per_grant(charged, grants, expected, charge):
    queue = replace(QUEUE_INPUT, expected_charge=expected)
    history, _ = observe(queue, QueueMemory(), seen(grants=grants, charged=charged), 0.0)
    assert history.charge == pytest.approx(charge)


def test_arrival_rate_over_the_last_minute():
    history, memory = watch(QueueMemory(), [seen(enqueued=2 * t) for t in range(200)])
    assert history.arrivals_per_second == pytest.approx(2.0)
    assert len(memory.arrivals) <= 14


def test_arrivals_after_a_reset_start_again():
    _, memory = watch(QueueMemory(), [seen(enqueued=500)])
    history, _ = watch(memory, [seen(enqueued=3)], start=60.0)
    assert history.arrivals_per_second == 0.0


def test_a_token_limit_whose_charge_is_not_known_binds_nothing_yet():
    limits = [Limit(LimitUnit.OUTPUT_TOKENS, 100)]
    made, _ = plan_one(
        group(queue_input(spec(max_replicas=7)), _ready(50), limits=limits), remembering(0)
    )
    assert (made.wish, made.bound_by, made.effective_rpm) == (7, "MaxReplicas", 0.0)


def _ready(jobs):
    return store([seen(ready=jobs)])
