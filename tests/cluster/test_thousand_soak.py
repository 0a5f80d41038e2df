"""A thousand LLMQueues on one operator."""

from __future__ import annotations

import pytest
from benchmarks.operator.measure import measure

from cluster.bench import Kube

pytestmark = [pytest.mark.soak, pytest.mark.serial, pytest.mark.timeout(1500)]


async def test_a_thousand_idle_queues(kube: Kube) -> None:
    """Restart to all planned ≤ 60 s; then < 1 core, < 300 MB, and nothing is written."""
    found = await measure(kube, 1000, steady_seconds=60)
    print(found)
    assert found.restart_seconds <= 60
    assert found.cpu_percent < 100
    assert found.memory_mib < 286  # 300 MB
    assert found.written == 0
