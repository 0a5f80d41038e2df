"""Every rule of the CRD, as a real API server applies it."""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import yaml

from cluster.bench import Kube
from cluster.bench.kube import CommandFailed, Object
from integration.crd.cases import CASES, CHANGES, Case, Change, document
from llmqueue_operator.errors import Refused
from llmqueue_operator.kube import LLMQUEUES

pytestmark = pytest.mark.asyncio(loop_scope="module")

EXAMPLES = {
    file.stem: file.read_text() for file in (Path(__file__).parents[2] / "examples").glob("*.yaml")
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(cluster_files) -> AsyncIterator[Kube]:  # type: ignore[no-untyped-def]
    async with Kube.connected(*cluster_files) as kube:
        yield kube


async def create(kube: Kube, made: Object, *, dry: bool = True) -> Object:
    """As `kubectl apply` does it: unknown fields are refused. Raises Refused."""
    query = {"fieldValidation": "Strict"} | ({"dryRun": "All"} if dry else {})
    return await kube.client.request("POST", LLMQUEUES.path("default"), query=query, body=made)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_a_spec_is_taken_or_refused(server: Kube, case: Case) -> None:
    """S8, S35: the message names the field and says what is wrong."""
    made = document(case.spec, name=f"case-{secrets.token_hex(4)}")
    if not case.field:
        await create(server, made)
        return
    with pytest.raises(Refused) as refused:
        await create(server, made)
    assert case.field in str(refused.value)
    assert case.message in str(refused.value)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.name)
async def test_a_change_is_taken_or_refused(server: Kube, change: Change) -> None:
    name = f"change-{secrets.token_hex(4)}"
    there = await create(server, document(change.old, name=name), dry=False)
    new = document(change.new, name=name)
    new["metadata"]["resourceVersion"] = there["metadata"]["resourceVersion"]
    path = LLMQUEUES.path("default", name)
    try:
        if not change.field:
            await server.client.request("PUT", path, body=new)
            return
        with pytest.raises(Refused) as refused:
            await server.client.request("PUT", path, body=new)
        assert change.field in str(refused.value)
        assert change.message in str(refused.value)
    finally:
        await server.client.request("DELETE", path)


@pytest.mark.parametrize("name", sorted(EXAMPLES))
async def test_every_example_applies(server: Kube, name: str) -> None:
    for made in yaml.safe_load_all(EXAMPLES[name]):
        if made["kind"] == LLMQUEUES.kind:
            found = await server.run(
                "apply", "--dry-run=server", "-o", "json", "-f", "-", stdin=json.dumps(made)
            )
            assert json.loads(found)["spec"]["scaling"]["maxReplicas"] >= 1


async def test_explain_reads_like_documentation(server: Kube) -> None:
    text = await server.run("explain", "llmqueue.spec.limits")
    words = " ".join(text.split())
    assert "The provider's limits for this account and model. At least one is needed." in words
    assert "requestsPerMinute <integer> Calls in any 60 seconds." in words
    every = json.loads(await server.run("get", "--raw", "/openapi/v3/apis/llmqueue.dev/v1alpha1"))
    spec = next(
        s for name, s in every["components"]["schemas"].items() if name.endswith(".LLMQueue")
    )
    assert not list(_undescribed(spec["properties"]["spec"], "spec"))


def _undescribed(schema: Object, path: str) -> list[str]:
    """Fields that `kubectl explain` would say nothing of."""
    found: list[str] = []
    for name, field in (schema.get("properties") or {}).items():
        if not (field.get("description") or field.get("x-kubernetes-preserve-unknown-fields")):
            found.append(f"{path}.{name}")
        found += _undescribed(field, f"{path}.{name}")
        found += _undescribed(field.get("items") or {}, f"{path}.{name}[]")
    return found


async def test_a_typing_error_is_named(server: Kube) -> None:
    """What `kubectl apply` says to a field that is not there."""
    wrong = document({"provider": {"type": "openai"}, "limits": {"requestPerMinute": 60}})
    with pytest.raises(CommandFailed, match=r"spec\.limits\.requestPerMinute"):
        await server.run("apply", "--dry-run=server", "-f", "-", stdin=json.dumps(wrong))
