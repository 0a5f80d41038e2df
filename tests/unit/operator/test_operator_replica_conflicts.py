"""Others who write the replicas: reverted once, then told and left alone for growing pauses."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from llmqueue_operator.apply import VICTIM_COST
from llmqueue_operator.contest import QUIET_SECONDS
from llmqueue_operator.errors import NotLeading
from llmqueue_operator.planning import Reason
from support.applybench import NAME, ApplyBench, planned
from support.clusterobjects import deployment, pod


def taken(bench: ApplyBench, who: str, replicas: int) -> None:
    """Somebody writes the replicas, and the watch shows it."""
    version = int(bench.cluster.deployments[NAME]["metadata"]["resourceVersion"]) + 1
    bench.cluster.owner = who
    bench.show(deployment(version=version, replicas=replicas, scalers=(who,)))


async def test_by_hand_is_reverted_once_with_an_event() -> None:
    """S22: to 0 by hand: back at once, one event, no condition."""
    bench = ApplyBench()
    taken(bench, "kubectl", 0)
    assert await bench.scale(planned(3)) is None
    assert bench.cluster.asked("scale") == [(3, False), (3, True)]
    assert bench.replicas == 3
    assert bench.events == ["ReplicasReverted: kubectl had set 0 replicas; set back to 3"]


async def test_forced_only_while_leading() -> None:
    """The answer to the first write may have taken long."""
    bench = ApplyBench()
    taken(bench, "kubectl", 0)
    first = bench.cluster.scale

    async def slow(*args: Any, **kwargs: Any) -> Any:
        bench.leading = False
        return await first(*args, **kwargs)

    bench.cluster.scale = slow  # type: ignore[method-assign]
    with pytest.raises(NotLeading):
        await bench.scale(planned(3))
    assert bench.cluster.asked("scale") == [(3, False)]
    assert bench.replicas == 0


async def test_again_is_a_conflict_and_no_fight() -> None:
    """S21, S22: the second time nothing is forced for a minute; the condition says who."""
    bench = ApplyBench()
    taken(bench, "hpa", 1)
    await bench.scale(planned(3))
    bench.now += 5
    taken(bench, "hpa", 1)
    bench.cluster.calls.clear()
    for _ in range(50):
        conflict = await bench.scale(planned(3))
        bench.now += 1
        assert conflict is not None
        assert conflict.reason == Reason.FOREIGN_WRITER
        assert "hpa" in conflict.message
    assert {forced for _, forced in bench.cluster.asked("scale")} == {False}
    assert bench.replicas == 1
    assert len(bench.events) == 1


async def test_the_pause_grows_and_the_condition_stays() -> None:
    """S21: an HPA that writes every second for three hours."""
    bench, forced, quiet = ApplyBench(), list[float](), 0
    for _ in range(3 * 3600):
        taken(bench, "hpa", 1)
        bench.cluster.calls.clear()
        conflict = await bench.scale(planned(3))
        forced += [bench.now for _, force in bench.cluster.asked("scale") if force]
        quiet += conflict is None
        bench.now += 1
    pauses = [after - before for before, after in itertools.pairwise(forced)]
    assert pauses == sorted(pauses)
    assert pauses[-1] == 600
    assert len(forced) < 30
    assert quiet == 1, "only the first revert goes without the condition"


async def test_a_conflict_that_is_over() -> None:
    """The HPA was removed: our next write goes through; the condition ends after a quiet while."""
    bench = ApplyBench()
    for _ in range(2):
        taken(bench, "hpa", 1)
        await bench.scale(planned(3))
    bench.show(deployment(version=50, replicas=1))
    bench.cluster.owner = None
    assert await bench.scale(planned(3)) is not None
    assert bench.replicas == 3
    bench.now += QUIET_SECONDS
    assert await bench.scale(planned(3)) is None


async def test_a_conflict_while_lowering_asks_the_pods_first() -> None:
    """S21: an HPA set 9; back to 3 ends pods, so it takes victims like any other step down."""
    bench = ApplyBench()
    taken(bench, "hpa", 9)
    await bench.scale(planned(2, remove=("b",)))
    assert bench.cluster.asked("scale") == []
    bench.pods(pod("a"), pod("b", version=2, cost=str(VICTIM_COST)), pod("c"))
    await bench.scale(planned(2, remove=("b",)))
    assert bench.replicas == 2


async def test_a_new_term_begins_without_old_quarrels() -> None:
    bench = ApplyBench()
    for _ in range(2):
        taken(bench, "hpa", 1)
        await bench.scale(planned(3))
    assert await bench.scale(planned(1)) is not None
    bench.applier.forget("default/other")
    assert await bench.scale(planned(1)) is not None
    bench.applier.forget()
    assert await bench.scale(planned(1)) is None
