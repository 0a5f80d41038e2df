"""Creating Deployments and keeping their fields."""

from __future__ import annotations

from typing import Any

import pytest

from llmqueue_operator.apply import REFUSED_SECONDS
from llmqueue_operator.errors import NotLeading, Refused
from llmqueue_operator.names import DIGEST_ANNOTATION
from llmqueue_operator.planning import Reason
from llmqueue_operator.pods import WorkerRedis, worker_deployment
from support.applybench import KEY, NAME, ApplyBench, planned
from support.clusterobjects import deployment, llmqueue


def wanted(bench: ApplyBench, image: str = "worker:1") -> dict[str, Any]:
    return worker_deployment(
        bench.member.resource,
        image=image,
        pull_policy="Never",
        redis=WorkerRedis(url="redis://v"),
    )


def fresh(bench: ApplyBench) -> ApplyBench:
    """Nothing there yet but the LLMQueue."""
    bench.cluster.deployments.clear()
    bench.world.replace_deployment(KEY, None)
    bench.cluster.queues[KEY] = llmqueue()
    return bench


async def test_created_with_its_replicas_after_a_fresh_look() -> None:
    bench = fresh(ApplyBench())
    assert await bench.applier.ensure(bench.member, wanted(bench), 4) is None
    assert [call[0] for call in bench.cluster.calls] == ["queue", "deployment", "check", "create"]
    assert bench.world.deployments[KEY].replicas == 4
    bench.cluster.calls.clear()
    await bench.applier.ensure(bench.member, wanted(bench), 9)
    assert bench.cluster.calls == [], "what is as applied is not applied again"


@pytest.mark.parametrize(
    "now",
    [
        pytest.param(None, id="gone"),
        pytest.param(llmqueue(deleting=True), id="S48: being deleted"),
        pytest.param(llmqueue(uid="another"), id="a namesake"),
    ],
)
async def test_nothing_is_created_for_a_queue_that_is_no_more(now: dict[str, Any] | None) -> None:
    """S48, S49: what the watches show may be over."""
    bench = fresh(ApplyBench())
    bench.cluster.queues = {KEY: now} if now else {}
    assert await bench.applier.ensure(bench.member, wanted(bench), 4) is None
    assert bench.cluster.writes == []


async def test_one_that_the_watch_has_not_brought_yet_is_taken_over() -> None:
    bench = fresh(ApplyBench())
    bench.cluster.deployments[NAME] = deployment(version=5, replicas=7)
    assert await bench.applier.ensure(bench.member, wanted(bench), 0) is None
    assert bench.cluster.writes == []
    assert bench.world.deployments[KEY].replicas == 7


async def test_a_name_that_is_taken_is_told() -> None:
    bench = fresh(ApplyBench())
    stranger = deployment(owner="")
    stranger["metadata"]["labels"] = {}
    bench.cluster.deployments[NAME] = stranger
    problem = await bench.applier.ensure(bench.member, wanted(bench), 4)
    assert problem is not None
    assert problem.reason == Reason.NAME_TAKEN
    assert "q-worker" in problem.message
    assert bench.cluster.writes == []


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        pytest.param(None, None, id="gone meanwhile"),
        pytest.param(deployment(owner="uid-before"), None, id="a namesake's: being collected"),
        pytest.param(deployment(owner=""), Reason.NAME_TAKEN, id="nobody's: a person must act"),
    ],
)
async def test_a_deployment_of_somebody_else(raw: dict[str, Any] | None, reason: Any) -> None:
    bench = ApplyBench()
    bench.show(raw or deployment(owner="uid-before"))
    if raw is None:
        bench.cluster.deployments.clear()
    problem = await bench.applier.ensure(bench.member, wanted(bench), 4)
    assert (problem.reason if problem else None) == reason
    assert bench.cluster.writes == []
    assert (KEY in bench.world.deployments) is (raw is not None)


async def test_another_spec_is_applied_without_replicas() -> None:
    """S23, S52: a new image at 12 workers is a rollout of 12."""
    bench = ApplyBench(replicas=12)
    await bench.applier.ensure(bench.member, wanted(bench), 0)
    assert bench.cluster.writes == ["check", "apply"]
    assert bench.world.deployments[KEY].replicas == 12
    await bench.applier.ensure(bench.member, wanted(bench, "worker:2"), 0)
    assert bench.cluster.writes == ["check", "apply"] * 2
    await bench.applier.ensure(bench.member, wanted(bench, "worker:2"), 0)
    assert len(bench.cluster.writes) == 4


async def test_what_others_changed_by_hand_is_set_right() -> None:
    """The digest is as applied, but the generation is not the one that was seen."""
    bench = ApplyBench()
    await bench.applier.ensure(bench.member, wanted(bench), 0)
    bench.cluster.calls.clear()
    edited = bench.cluster.deployments[NAME]
    meta = {**edited["metadata"], "generation": 40, "resourceVersion": "4000"}
    bench.show({**edited, "metadata": meta})
    await bench.applier.ensure(bench.member, wanted(bench), 0)
    assert bench.cluster.writes == ["check", "apply"]
    await bench.applier.ensure(bench.member, wanted(bench), 0)
    assert bench.cluster.writes == ["check", "apply"]


async def test_our_own_scaling_is_no_change_by_others() -> None:
    bench = ApplyBench()
    await bench.applier.ensure(bench.member, wanted(bench), 0)
    await bench.scale(planned(9))
    bench.cluster.calls.clear()
    await bench.applier.ensure(bench.member, wanted(bench), 0)
    assert bench.cluster.calls == []


@pytest.mark.parametrize("there", [True, False], ids=["changed", "new"])
async def test_a_refusal_is_told(there: bool) -> None:
    """A quota, an admission policy: the user reads the server's words in the status."""
    bench = ApplyBench() if there else fresh(ApplyBench())
    refusal = Refused("pods are forbidden: exceeded quota")
    bench.cluster.failures = {"create": refusal, "apply": refusal}
    problem = await bench.applier.ensure(bench.member, wanted(bench), 4)
    assert problem is not None
    assert (problem.type, problem.reason) == ("Ready", Reason.DEPLOYMENT_REFUSED)
    assert "exceeded quota" in problem.message


async def test_a_deposed_leader_creates_and_applies_nothing() -> None:
    for bench in (ApplyBench(), fresh(ApplyBench())):
        bench.leading = False
        with pytest.raises(NotLeading):
            await bench.applier.ensure(bench.member, wanted(bench), 4)
        assert [each for each in bench.cluster.writes if each != "check"] == []


@pytest.mark.parametrize(
    "managed",
    [
        pytest.param(
            [{"manager": "llmqueue-scaler", "fieldsV1": {"f:spec": {"f:template": {}}}}],
            id="the operator ended after the first apply",
        ),
        pytest.param(
            [
                {"manager": "llmqueue"},
                {"manager": "llmqueue-scaler", "fieldsV1": {"f:spec": {"f:template": {}}}},
            ],
            id="after the second",
        ),
    ],
)
async def test_a_creation_that_was_cut_short_is_completed(managed: list[dict[str, Any]]) -> None:
    """Until the scaler has let go of the template, nothing could be removed from it any more."""
    bench = ApplyBench()
    digest = wanted(bench)["metadata"]["annotations"][DIGEST_ANNOTATION]
    bench.show(deployment(applied=digest, managedFields=managed))
    assert await bench.applier.ensure(bench.member, wanted(bench), 4) is None
    assert "hand over" in bench.cluster.writes
    bench.cluster.calls.clear()
    await bench.applier.ensure(bench.member, wanted(bench), 4)
    assert bench.cluster.writes == []


# ---------------------------------------------------------------- refused


@pytest.mark.parametrize("there", [True, False], ids=["changed", "new"])
async def test_what_was_refused_is_not_asked_for_all_the_time(there: bool) -> None:
    """A write for each tick is a load for nothing; the condition stays meanwhile."""
    bench = ApplyBench() if there else fresh(ApplyBench())
    refusal = Refused("exceeded quota")
    bench.cluster.failures = {"create": refusal, "apply": refusal}
    first = await bench.applier.ensure(bench.member, wanted(bench), 4)
    bench.cluster.calls.clear()
    bench.now += REFUSED_SECONDS - 0.1
    assert first is not None
    assert await bench.applier.ensure(bench.member, wanted(bench), 4) == first
    assert bench.cluster.calls == []
    bench.now += 0.1
    await bench.applier.ensure(bench.member, wanted(bench), 4)
    assert bench.cluster.documents == []
    assert bench.cluster.writes == ["check", "apply" if there else "create"], "tried again"
    bench.cluster.failures.clear()
    bench.now += REFUSED_SECONDS
    assert await bench.applier.ensure(bench.member, wanted(bench), 4) is None
    assert bench.cluster.documents


@pytest.mark.parametrize("there", [True, False], ids=["changed", "new"])
async def test_what_was_changed_after_a_refusal_is_tried_at_once(there: bool) -> None:
    bench = ApplyBench() if there else fresh(ApplyBench())
    refusal = Refused("the image is not allowed")
    bench.cluster.failures = {"create": refusal, "apply": refusal}
    assert await bench.applier.ensure(bench.member, wanted(bench), 4)
    bench.cluster.failures.clear()
    assert await bench.applier.ensure(bench.member, wanted(bench, "worker:2"), 4) is None
    assert len(bench.cluster.documents) == 1


async def test_a_refusal_ends_with_the_term_and_with_the_queue() -> None:
    for key in (None, KEY):
        bench = ApplyBench()
        bench.cluster.failures = {"apply": Refused("no")}
        assert await bench.applier.ensure(bench.member, wanted(bench), 4)
        bench.cluster.failures.clear()
        bench.applier.forget(key)
        assert await bench.applier.ensure(bench.member, wanted(bench), 4) is None


# ---------------------------------------------------------------- which object, and whose


async def test_an_apply_is_for_the_object_that_was_seen() -> None:
    """Deleted a moment ago: an apply must not make a new one, with no replicas of the scaler."""
    bench = fresh(ApplyBench())
    await bench.applier.ensure(bench.member, wanted(bench), 4)
    assert "uid" not in bench.cluster.documents[-1]["metadata"], "a new one has none yet"
    await bench.applier.ensure(bench.member, wanted(bench, "worker:2"), 4)
    uid = bench.world.deployments[KEY].uid
    assert bench.cluster.documents[-1]["metadata"]["uid"] == uid
    bench.show(deployment(applied="", uid="another"))
    await bench.applier.ensure(bench.member, wanted(bench), 4)
    assert bench.cluster.writes[-1] == "hand over"
    assert bench.cluster.documents[-1]["metadata"]["uid"] == "another"


async def test_a_template_that_somebody_edited_while_nobody_led() -> None:
    """The digest says nothing of it: once in a term it is set right."""
    bench = ApplyBench()
    digest = wanted(bench)["metadata"]["annotations"][DIGEST_ANNOTATION]
    edited = deployment(applied=digest, editors=("kubectl-edit",))
    bench.show(edited)
    assert await bench.applier.ensure(bench.member, wanted(bench), 4) is None
    assert bench.cluster.writes == ["check", "hand over"]
    generation = bench.world.deployments[KEY].generation
    # A field of its own that it keeps, such as an annotation of `kubectl rollout restart`.
    bench.show(
        deployment(applied=digest, editors=("kubectl",), version=2000, generation=generation)
    )
    for _ in range(3):
        await bench.applier.ensure(bench.member, wanted(bench), 4)
    assert bench.cluster.writes == ["check", "hand over"]
    bench.applier.forget()
    await bench.applier.ensure(bench.member, wanted(bench), 4)
    assert bench.cluster.writes == ["check", "hand over"] * 2


async def test_a_template_of_our_own_is_not_written_at_the_first_look() -> None:
    bench = ApplyBench()
    digest = wanted(bench)["metadata"]["annotations"][DIGEST_ANNOTATION]
    bench.show(deployment(applied=digest, scalers=("hpa",)))
    await bench.applier.ensure(bench.member, wanted(bench), 4)
    assert bench.cluster.writes == []


@pytest.mark.parametrize(
    ("now", "reason"),
    [
        pytest.param(deployment(owner="", uid="n", version=9), Reason.NAME_TAKEN, id="nobody's"),
        pytest.param(deployment(uid="n", version=9), None, id="this queue's own"),
        pytest.param(
            deployment(owner="", uid="n", version=9, deletionTimestamp="2026-01-01T00:00:00Z"),
            None,
            id="going",
        ),
    ],
)
async def test_the_deployment_as_it_is_now_is_judged(now: dict[str, Any], reason: Any) -> None:
    """The watch shows a namesake's of before; meanwhile another one took the name."""
    bench = ApplyBench()
    bench.show(deployment(owner="uid-before"))
    bench.cluster.deployments[NAME] = now
    problem = await bench.applier.ensure(bench.member, wanted(bench), 4)
    assert (problem.reason if problem else None) == reason
    assert bench.world.deployments[KEY].uid == "n"
    assert bench.cluster.writes == []
