"""Which pods may go, and when a write is not made. What a server makes of it: tests/cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from llmqueue_operator.apply import MARKS_HOLD_SECONDS, VICTIM_COST
from llmqueue_operator.errors import NotFound, NotLeading, Refused, StaleVersion
from llmqueue_operator.planning import QueuePlan, Reason
from support.applybench import KEY, NAME, ApplyBench, planned
from support.clusterobjects import deployment, pod

COST = str(VICTIM_COST)


def marked(*names: str) -> list[dict[str, Any]]:
    """Pods a, b, c; these carry the deletion cost, seen on the watch."""
    return [pod(name, version=2, cost=COST if name in names else None) for name in "abc"]


# ---------------------------------------------------------------- down


async def test_down_in_order() -> None:
    """S3: tag the victim; once the watch has shown the tag, read afresh, then lower."""
    bench = ApplyBench()
    assert await bench.scale(planned(2, remove=("b",))) is None
    assert bench.cluster.asked("cost") == [("pod-b", VICTIM_COST)]
    assert bench.cluster.asked("scale") == []
    bench.cluster.calls.clear()
    bench.pods(*marked("b"))
    await bench.scale(planned(2, remove=("b",)))
    assert [call[0] for call in bench.cluster.calls] == ["pods", "check", "scale"]
    assert bench.cluster.asked("scale") == [(2, False)]
    assert bench.replicas == 2
    assert bench.world.deployments[KEY].replicas == 2, "the next tick need not wait for the watch"


async def test_not_before_the_tag_was_seen() -> None:
    """S3, S4: an answered write is not enough: the ReplicaSet controller reads the same watch."""
    bench = ApplyBench()
    for _ in range(5):
        await bench.scale(planned(2, remove=("b",)))
    assert bench.cluster.asked("scale") == []
    assert bench.cluster.asked("pods") == [], "no list of pods for nothing"


async def test_two_victims_one_tag_seen() -> None:
    bench = ApplyBench()
    bench.pods(*marked("b"))
    await bench.scale(planned(1, remove=("a", "b")))
    assert bench.cluster.asked("cost") == [("pod-a", VICTIM_COST)]
    assert bench.cluster.asked("scale") == []


async def victim_goes(bench: ApplyBench, fresh: list[dict[str, Any]], *, age: float = 0.0) -> bool:
    """Whether b goes, while a list shows these pods."""
    bench.pods(*marked("b"), fresh=fresh)
    await bench.scale(planned(2, remove=("b",)), age=age)
    return bool(bench.cluster.asked("scale"))


UNREADY = pod("a", version=9, ready=None)


@pytest.mark.parametrize(
    ("fresh", "goes"),
    [
        pytest.param(marked("b"), True, id="as the watch showed"),
        pytest.param([UNREADY, *marked("b")[1:]], False, id="S6: a busy one just turned NotReady"),
        pytest.param(
            [*marked("b"), pod("d", ready=None)], False, id="S4: a new one that is not ready"
        ),
        pytest.param([*marked("b"), pod("d")], False, id="S4: one more than was known"),
        pytest.param(
            [marked()[0], pod("b", version=9, deleting=True, cost=COST), marked()[2]],
            True,
            id="the victim goes already: nobody else is ended",
        ),
        pytest.param(
            [pod("a", version=9, deleting=True), *marked("b")[1:]],
            True,
            id="another went by itself: nobody is ended",
        ),
        pytest.param([pod("a", phase="Failed"), *marked("b")[1:]], True, id="one has ended"),
        pytest.param(
            [*marked("b")[:2], pod("c", version=9, cost=COST)],
            False,
            id="named before, and its tag is not off yet",
        ),
        pytest.param(
            [*marked("b")[:2], pod("c", version=9, cost="-2000")],
            False,
            id="a user's own cost that is lower than ours",
        ),
        pytest.param([*marked("b"), pod("d", replicaset="")], True, id="a pod that is no worker"),
        pytest.param(
            [*marked("b"), pod("d", deleting=True, cost=COST)], True, id="one named before is going"
        ),
        pytest.param(
            [pod("a", deleting=True), marked("b")[1], pod("c", version=9, ready=None)],
            True,
            id="one went, one NotReady: nobody is ended",
        ),
    ],
)
async def test_a_fresh_look_decides(fresh: list[dict[str, Any]], goes: bool) -> None:
    """S4, S6: no removal without a fresh read; NotReady pods would go first, whatever their cost."""
    assert await victim_goes(ApplyBench(), fresh) is goes


async def test_a_pod_known_not_to_be_ready_is_the_plan_s_matter() -> None:
    """S6: the plan has seen it and named who goes; only what it could not know stops it."""
    bench = ApplyBench()
    known = [pod("a", version=2, ready=None), *marked("b")[1:]]
    bench.pods(*known)
    await bench.scale(planned(2, remove=("b",)))
    assert bench.replicas == 2


async def test_a_tag_that_the_watch_still_shows() -> None:
    """The ReplicaSet controller may see it as long as we do: c would go instead of b."""
    bench = ApplyBench()
    bench.pods(*marked("b", "c"), fresh=marked("b"))
    await bench.scale(planned(2, remove=("b",)))
    assert bench.cluster.asked("cost") == [("pod-c", None)]
    assert bench.cluster.asked("scale") == []
    bench.pods(*marked("b"))
    await bench.scale(planned(2, remove=("b",)))
    assert bench.replicas == 2


async def test_one_that_is_going_already_keeps_nobody() -> None:
    """It carries its tag to the end, which may be a whole grace period away."""
    bench = ApplyBench()
    bench.pods(*marked("b"), pod("d", version=9, deleting=True, cost=COST))
    await bench.scale(planned(2, remove=("b",)))
    assert bench.replicas == 2


async def test_a_victim_may_be_unready() -> None:
    bench = ApplyBench()
    assert await victim_goes(
        bench, [marked()[0], pod("b", version=9, cost=COST, ready=None), marked()[2]]
    )


async def test_more_to_end_than_were_named() -> None:
    """The replicas would end two; one is named: nobody goes."""
    bench = ApplyBench()
    bench.pods(*marked("b"))
    await bench.scale(planned(1, remove=("b",)))
    assert bench.cluster.asked("scale") == []


async def test_nothing_removed_twice() -> None:
    """S6: the victim has gone since the plan; the lower number is written, and ends nobody."""
    bench = ApplyBench()
    bench.pods(*marked("b"), fresh=[marked()[0], marked()[2]])
    await bench.scale(planned(2, remove=("b",)))
    await bench.scale(planned(2, remove=("b",)))
    assert bench.cluster.asked("scale") == [(2, False)]


@pytest.mark.parametrize(
    ("age", "goes"),
    [
        pytest.param(0.0, True, id="at once"),
        pytest.param(MARKS_HOLD_SECONDS - 0.1, True, id="still"),
        pytest.param(MARKS_HOLD_SECONDS, False, id="drain marks may have lapsed"),
        pytest.param(60.0, False, id="long ago"),
    ],
)
async def test_an_old_plan_ends_nobody(age: float, goes: bool) -> None:
    """S3: marks that nobody renews lapse, and the worker may have taken a job."""
    assert await victim_goes(ApplyBench(), marked("b"), age=age) is goes


async def test_a_plan_that_gets_old_while_pods_are_read() -> None:
    """S3: the age is asked after the read, right before the write."""
    bench = ApplyBench()
    bench.pods(*marked("b"))
    slow = bench.cluster.pods

    async def pods(namespace: str, queue: str) -> list[dict[str, Any]]:
        bench.now += MARKS_HOLD_SECONDS
        return await slow(namespace, queue)

    bench.cluster.pods = pods  # type: ignore[method-assign]
    await bench.scale(planned(2, remove=("b",)))
    assert bench.cluster.asked("scale") == []


async def test_an_old_plan_may_still_add() -> None:
    bench = ApplyBench()
    await bench.scale(planned(9), age=60)
    assert bench.replicas == 9


# ---------------------------------------------------------------- tags


@pytest.mark.parametrize(
    ("before", "wanted", "written"),
    [
        pytest.param(None, False, None, id="nothing to do"),
        pytest.param(COST, True, None, id="there already"),
        pytest.param(COST, False, ("pod-a", None), id="demand is back: taken off"),
        pytest.param(None, True, ("pod-a", VICTIM_COST), id="put on"),
        pytest.param("7", False, None, id="a user's own stays"),
        pytest.param("7", True, ("pod-a", VICTIM_COST), id="a user's own gives way"),
    ],
)
async def test_tags(before: str | None, wanted: bool, written: tuple[Any, ...] | None) -> None:
    bench = ApplyBench()
    bench.pods(pod("a", cost=before), pod("b"), pod("c"))
    await bench.scale(planned(3, remove=("a",) if wanted else ()))
    assert bench.cluster.asked("cost") == ([written] if written else [])


async def test_a_pod_that_is_ending_is_not_tagged() -> None:
    bench = ApplyBench()
    bench.pods(pod("a", deleting=True), pod("b"), pod("c"))
    await bench.scale(planned(3, remove=("a",)))
    assert bench.cluster.asked("cost") == []


# ---------------------------------------------------------------- up, frozen, not ours


async def test_up_is_one_write_without_a_look() -> None:
    """S29: nothing delays it."""
    bench = ApplyBench()
    await bench.scale(planned(20))
    assert [call[0] for call in bench.cluster.calls] == ["check", "scale"]
    assert bench.replicas == 20


async def test_as_planned_is_no_write() -> None:
    """No API write when nothing changes."""
    bench = ApplyBench()
    await bench.scale(planned(3))
    assert bench.cluster.calls == []


async def test_paused_scaling_freezes_the_replicas() -> None:
    bench = ApplyBench(scaling={"paused": True})
    await bench.scale(planned(9))
    assert bench.cluster.asked("scale") == []


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(lambda b: b.show(deployment(owner="uid-before")), id="a namesake's"),
        pytest.param(lambda b: b.world.replace_deployment(KEY, None), id="gone"),
    ],
)
async def test_a_deployment_that_is_not_ours_is_left_alone(
    end: Callable[[ApplyBench], None],
) -> None:
    bench = ApplyBench()
    end(bench)
    assert await bench.scale(planned(9, remove=("a",))) is None
    assert bench.cluster.calls == []


@pytest.mark.parametrize(
    "plan",
    [planned(9), planned(2, remove=("b",)), planned(3, remove=("a",))],
    ids=["up", "down", "tag"],
)
async def test_a_deposed_leader_writes_nothing(plan: QueuePlan) -> None:
    bench = ApplyBench()
    bench.pods(*marked("b"))
    bench.leading = False
    with pytest.raises(NotLeading):
        await bench.scale(plan)
    assert [each for each in bench.cluster.writes if each != "check"] == []


async def test_a_version_that_is_not_the_present_one() -> None:
    """The watch is behind: nothing is written over it; the next tick has the fresh one."""
    bench = ApplyBench()
    bench.cluster.deployments[NAME] = deployment(version=7, replicas=5)
    with pytest.raises(StaleVersion):
        await bench.scale(planned(9))
    assert bench.replicas == 5
    assert bench.world.deployments[KEY].version == "7"
    await bench.scale(planned(9))
    assert bench.replicas == 9


async def test_a_deployment_that_is_gone_is_noticed() -> None:
    bench = ApplyBench()
    del bench.cluster.deployments[NAME]
    with pytest.raises(NotFound):
        await bench.scale(planned(9))
    assert KEY not in bench.world.deployments


@pytest.mark.parametrize("method", ["scale", "pods", "set_deletion_cost"])
async def test_a_refusal_is_a_condition(method: str) -> None:
    """A quota on replicas, a policy on pods, a right that is missing: a person must act, and reads
    the server's words in the status."""
    bench = ApplyBench()
    tagged = method == "set_deletion_cost"
    bench.pods(*marked(*("" if tagged else "b")))
    bench.cluster.failures = {
        "cost" if tagged else method: Refused("pods is forbidden: by the policy")
    }
    found = await bench.scale(planned(2, remove=("b",)))
    assert found is not None
    assert (found.type, found.status) == ("Ready", False)
    assert found.reason == Reason.DEPLOYMENT_REFUSED
    assert "by the policy" in found.message
    assert bench.replicas == 3
    bench.cluster.failures.clear()
    bench.pods(*marked("b"))
    assert await bench.scale(planned(2, remove=("b",))) is None
    assert bench.replicas == 2
