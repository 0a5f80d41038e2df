"""What holds for every test: how hypothesis searches, and the store that tests share."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from support.topologies import ClusterOfThree, SentinelSet
from support.valkey import ValkeyServer

# No deadline: on a shared machine a slow example says nothing about the code. What the search
# covers is bounded by max_examples, which each test may set for itself.
settings.register_profile(
    "local", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
# CI repeats the same examples, so that a red run can be repeated at home.
settings.register_profile("ci", settings.get_profile("local"), derandomize=True, database=None)
settings.load_profile("ci" if os.environ.get("CI") else "local")

# Real processes with leases and drains of seconds: beside other tests they would measure the
# machine's load instead of the worker.
SERIAL_FOLDERS = ("worker", "faults", "local")
# Minutes of steady load, most of it sleep: a few side by side leave the machine idle enough. But one
# takes all of its cores on purpose, and one measures how fast many processes start.
STEADY_FOLDER = "steady"
ALONE = ("test_starved.py", "test_worked_example.py")
_INTEGRATION = Path(__file__).parent / "integration"
_CLUSTER = Path(__file__).parent / "cluster"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    folders = [_INTEGRATION / name for name in SERIAL_FOLDERS]
    for item in items:
        steady = _INTEGRATION / STEADY_FOLDER in item.path.parents
        if steady and item.path.name not in ALONE:
            item.add_marker(pytest.mark.steady)
        elif steady or any(folder in item.path.parents for folder in folders):
            item.add_marker(pytest.mark.serial)
        if _CLUSTER in item.path.parents:
            item.add_marker(pytest.mark.cluster)


@pytest.fixture(scope="session")
def valkey_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """One store for all tests of a process that ask for it; each empties it before its start.

    A folder whose tests run on other topologies names them by an indirect parameter.
    """
    kinds = {"server": ValkeyServer, "sentinel": SentinelSet, "cluster": ClusterOfThree}
    store = kinds[getattr(request, "param", "server")]()
    asyncio.run(store.start())
    try:
        yield store.url
    finally:
        asyncio.run(store.__aexit__())
