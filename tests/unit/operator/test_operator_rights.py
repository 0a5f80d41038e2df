"""What the operator may do, against what its code asks for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from llmqueue_operator.kube import Cluster
from llmqueue_operator.kube.kinds import DEPLOYMENTS, LLMQUEUES, PODS, Kind
from support.clusterobjects import deployment, llmqueue

ROOT = Path(__file__).parents[3]
Right = tuple[str, str, str]
"""API group, resource, verb."""


def documents() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((ROOT / "manifests" / "rbac.yaml").read_text()))


def rules() -> list[dict[str, Any]]:
    return [rule for each in documents() for rule in each.get("rules", ())]


def granted() -> set[Right]:
    return {
        (group, resource, verb)
        for rule in rules()
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


class RightsClient:
    """Stands for `kube.KubeClient` and notes which right each request needs."""

    def __init__(self) -> None:
        self.needed: set[Right] = set()

    def _need(self, kind: Kind, *verbs: str, subresource: str = "") -> None:
        resource = f"{kind.plural}/{subresource}" if subresource else kind.plural
        self.needed |= {(kind.group, resource, verb) for verb in verbs}

    async def get(self, kind: Kind, namespace: str, name: str) -> dict[str, Any]:
        self._need(kind, "get")
        return {}

    async def listed(
        self, kind: Kind, namespace: str | None, *, labels: str = ""
    ) -> AsyncIterator[dict[str, Any]]:
        self._need(kind, "list")
        for _ in ():
            yield {}

    async def create(self, kind: Kind, namespace: str, document: Any) -> dict[str, Any]:
        self._need(kind, "create")
        return {}

    async def replace(self, kind: Kind, namespace: str, name: str, document: Any) -> dict[str, Any]:
        self._need(kind, "update")
        return {}

    async def apply(
        self,
        kind: Kind,
        namespace: str,
        document: Any,
        *,
        manager: str,
        force: bool = False,
        subresource: str = "",
    ) -> dict[str, Any]:
        """An apply that makes a new object needs `create` too."""
        verbs = (
            ("patch",) if subresource or "replicas" not in document["spec"] else ("patch", "create")
        )
        self._need(kind, *verbs, subresource=subresource)
        return document if kind is DEPLOYMENTS else {}

    async def merge(self, kind: Kind, namespace: str, name: str, change: Any) -> dict[str, Any]:
        self._need(kind, "patch")
        return {}


async def needed() -> set[Right]:
    """By every method of Cluster, and by kopf's watches."""
    client = RightsClient()
    cluster = Cluster(client, watched="default")  # type: ignore[arg-type]
    for kind in (LLMQUEUES, DEPLOYMENTS, PODS):
        _ = [each async for each in cluster.all_of(kind)]
        client._need(kind, "watch", "list")
    await cluster.queue("default", "q")
    await cluster.deployment("default", "q-worker")
    await cluster.pods("default", "q")
    await cluster.create_deployment(deployment(), 3)
    await cluster.apply_deployment(deployment())
    await cluster.hand_over(deployment())
    await cluster.scale("default", "q-worker", 3, version="1")
    await cluster.set_deletion_cost("default", "pod-a", None)
    await cluster.write_status("default", "q", "uid-q", {})
    await cluster.post_event("default", {})
    await cluster.lease("default", "l")
    await cluster.create_lease("default", {})
    await cluster.replace_lease("default", "l", {})
    return client.needed


def covered() -> set[str]:
    return {name for name in vars(Cluster) if not name.startswith("_")}


async def test_exactly_what_the_code_needs() -> None:
    """A right more is one that a stolen token has; a right less is an operator that cannot work."""
    assert granted() == await needed()


def test_every_method_of_the_cluster_is_counted_above() -> None:
    asked = {"serves_queues"}  # discovery: every service account may
    asked |= {"all_of", "queue", "deployment", "pods", "create_deployment", "apply_deployment"}
    asked |= {"hand_over", "scale", "set_deletion_cost", "write_status", "post_event"}
    asked |= {"lease", "create_lease", "replace_lease"}
    assert covered() == asked


def test_no_verb_on_secrets_and_no_wildcard() -> None:
    for group, resource, verb in granted():
        assert "*" not in (group, resource, verb)
        assert not resource.startswith("secrets")
    assert all(rule.keys() == {"apiGroups", "resources", "verbs"} for rule in rules())


@pytest.mark.parametrize(
    ("group", "resource"),
    [("rbac.authorization.k8s.io", "roles"), ("", "serviceaccounts/token"), ("", "pods/exec")],
)
def test_no_way_to_more_rights(group: str, resource: str) -> None:
    assert not [each for each in granted() if each[:2] == (group, resource)]
    verbs = {verb for _, _, verb in granted()}
    assert not verbs & {"escalate", "bind", "impersonate", "delete", "deletecollection"}


def test_rights_in_its_own_namespace_only() -> None:
    kinds = {each["kind"] for each in documents()}
    assert kinds == {"ServiceAccount", "Role", "RoleBinding"}
    role, binding = (
        next(d for d in documents() if d["kind"] == k) for k in ("Role", "RoleBinding")
    )
    account = next(d for d in documents() if d["kind"] == "ServiceAccount")
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    (subject,) = binding["subjects"]
    assert subject["name"] == account["metadata"]["name"]
    (operator,) = yaml.safe_load_all((ROOT / "manifests" / "operator.yaml").read_text())
    assert operator["spec"]["template"]["spec"]["serviceAccountName"] == subject["name"]


def test_paths_of_the_kinds() -> None:
    assert PODS.path("n") == "/api/v1/namespaces/n/pods"
    assert PODS.path(None) == "/api/v1/pods"
    path = "/apis/llmqueue.dev/v1alpha1/namespaces/n/llmqueues/q/status"
    assert LLMQUEUES.path("n", "q", "status") == path
    assert (PODS.api_version, DEPLOYMENTS.api_version) == ("v1", "apps/v1")
    assert llmqueue()["metadata"]["name"] == "q"
