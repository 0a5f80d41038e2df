"""The chart's operator is the one of manifests/, with the same rights and the same hardening."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from support.checkout import ROOT
from support.rendering import rendered

Object = dict[str, Any]
Right = tuple[str, str, str]
LEASES = {("coordination.k8s.io", "leases", verb) for verb in ("get", "create", "update")}


def manifests(file: str) -> list[Object]:
    return list(yaml.safe_load_all((ROOT / "manifests" / file).read_text()))


def rights(*objects: Object) -> set[Right]:
    return {
        (group, resource, verb)
        for each in objects
        for rule in each.get("rules", ())
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def of_kind(objects: list[Object], kind: str) -> list[Object]:
    return [each for each in objects if each["kind"] == kind]


def test_rights_of_one_namespace() -> None:
    objects = rendered()
    (role,), (binding,) = of_kind(objects, "Role"), of_kind(objects, "RoleBinding")
    assert rights(role) == rights(*manifests("rbac.yaml"))
    assert not of_kind(objects, "ClusterRole") + of_kind(objects, "ClusterRoleBinding")
    _binds(binding, role, objects)


def test_rights_of_the_whole_cluster() -> None:
    """The Lease stays in the release's namespace."""
    objects = rendered("--set=scope=Cluster")
    (role,), (wide,) = of_kind(objects, "Role"), of_kind(objects, "ClusterRole")
    assert rights(role) == LEASES
    assert rights(wide) == rights(*manifests("rbac.yaml")) - LEASES
    _binds(of_kind(objects, "RoleBinding")[0], role, objects)
    _binds(of_kind(objects, "ClusterRoleBinding")[0], wide, objects)


def _binds(binding: Object, role: Object, objects: list[Object]) -> None:
    assert binding["roleRef"] == {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": role["kind"],
        "name": role["metadata"]["name"],
    }
    (account,) = of_kind(objects, "ServiceAccount")
    (subject,) = binding["subjects"]
    assert subject == {
        "kind": "ServiceAccount",
        "name": account["metadata"]["name"],
        "namespace": "team",
    }
    operator = of_kind(objects, "Deployment")[0]
    assert operator["spec"]["template"]["spec"]["serviceAccountName"] == subject["name"]


@pytest.mark.parametrize("scope", ["Namespace", "Cluster"])
def test_no_rights_where_somebody_else_gives_them(scope: str) -> None:
    options = ["--set=rbac.create=false", "--set=serviceAccount.create=false"]
    objects = rendered(f"--set=scope={scope}", *options, "--set=serviceAccount.name=theirs")
    assert not [e for e in objects if "Role" in e["kind"] or e["kind"] == "ServiceAccount"]
    operator = of_kind(objects, "Deployment")[0]
    assert operator["spec"]["template"]["spec"]["serviceAccountName"] == "theirs"


def test_the_pod_is_that_of_the_manifests() -> None:
    """Same probes, security, resources, volumes; the chart may only say more."""
    (theirs,) = manifests("operator.yaml")
    ours = of_kind(rendered(), "Deployment")[0]
    assert ours["spec"]["replicas"] == theirs["spec"]["replicas"]
    theirs, ours = (each["spec"]["template"]["spec"] for each in (theirs, ours))
    for field in ("securityContext", "enableServiceLinks"):
        assert ours[field] == theirs[field]
    (theirs,), (ours,) = theirs["containers"], ours["containers"]
    same = ("ports", "startupProbe", "livenessProbe", "readinessProbe", "resources")
    for field in (*same, "securityContext", "volumeMounts"):
        assert ours[field] == theirs[field], field
    variables = {each["name"]: each for each in ours["env"]}
    for each in theirs["env"]:
        if "valueFrom" in each:
            assert variables[each["name"]] == each
    assert {each["name"] for each in theirs["env"]} <= variables.keys()
