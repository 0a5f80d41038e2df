"""The store's state machine against a real server."""

from __future__ import annotations

import os
import time

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from contract.store.machine import StoreMachine

SOAK_SECONDS = 20 * 60


def _search(url: str, examples: int, steps: int) -> None:
    class Machine(StoreMachine):
        pass

    Machine.url = url
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.timeout(900)
def test_store_keeps_its_promises(valkey_url: str) -> None:
    """Jobs conserved, counters equal structures, no window over, each fence settled once, ledger =
    bill, whatever workers, producers, outages and cancellations do in any order."""
    _search(valkey_url, examples=50, steps=50)


@pytest.mark.soak
@pytest.mark.timeout(SOAK_SECONDS + 600)
def test_store_keeps_its_promises_for_long(valkey_url: str) -> None:
    end = time.monotonic() + float(os.environ.get("LLMQUEUE_SOAK_SECONDS", SOAK_SECONDS))
    rounds = 0
    while time.monotonic() < end:
        _search(valkey_url, examples=100, steps=80)
        rounds += 1
    print(f"\nstate machine: {rounds * 100} examples of up to 80 steps, no counterexample")
