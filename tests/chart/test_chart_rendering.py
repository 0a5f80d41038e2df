"""What holds for every rendering of the chart."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.rendering import CHART, helm, refusal, rendered, template

CI = sorted((CHART / "ci").glob("*-values.yaml"))
LONG = "n" * 53
Object = dict[str, Any]


def values(file: Path) -> str:
    return f"--values={file}"


def pods(objects: list[Object]) -> list[tuple[str, Object]]:
    """(name, spec) of every pod that comes of them."""
    found = [
        (each["metadata"]["name"], each["spec"]["template"]["spec"])
        for each in objects
        if "template" in each.get("spec", {})
    ]
    return found + [(e["metadata"]["name"], e["spec"]) for e in objects if e["kind"] == "Pod"]


def test_there_is_an_example_of_each_way_to_install() -> None:
    assert {file.name.removesuffix("-values.yaml") for file in CI} >= {
        *("default", "external-redis", "secrets", "cluster-scope", "hardened", "monitoring"),
    }


@pytest.mark.parametrize("file", CI, ids=lambda file: file.stem)
def test_lint(file: Path) -> None:
    done = subprocess.run(
        [helm(), "lint", "--strict", str(CHART), values(file)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert not re.search(r"WARNING|ERROR", done.stdout), done.stdout


@pytest.mark.parametrize("file", CI, ids=lambda file: file.stem)
def test_the_same_values_render_to_the_same_bytes(file: Path) -> None:
    first, second = (template(values(file)).stdout for _ in range(2))
    assert first == second != ""
    upgraded = template(values(file), "--is-upgrade")
    assert upgraded.stdout == first


@pytest.mark.parametrize("file", CI, ids=lambda file: file.stem)
def test_the_oldest_helm_renders_the_same(file: Path) -> None:
    """But for empty lines."""
    oldest, newest = (template(values(file), oldest=oldest) for oldest in (True, False))
    assert oldest.returncode == 0, oldest.stderr
    lines = [line for line in oldest.stdout.splitlines() if line]
    assert lines == [line for line in newest.stdout.splitlines() if line]


def test_an_older_kubernetes_is_refused() -> None:
    assert "requires kubeVersion: >=1.33.0-0" in refusal("--kube-version=1.32.9")


MOVING = re.compile(
    r"(?<![\w.])(?:lookup|rand\w+|now|gen[A-Z]\w+|uuidv4|htpasswd)\b|\.Capabilities|\.Revision"
)
"""What two renderings in a row need not show: chance, the time, the cluster that is there."""


@pytest.mark.parametrize(
    ("action", "moves"),
    [
        ('{{ lookup "v1" "Secret" "a" "b" }}', True),
        ("{{- randAlphaNum 8 | quote }}", True),
        ("{{ genCA $name 3 }}", True),
        ("{{ .Capabilities.APIVersions }}", True),
        ("{{ .Release.Revision }}", True),
        ("{{ .Values.unknown }}", False),
        ("{{- /* now, a comment */}}", False),
    ],
)
def test_what_moves_is_found(action: str, moves: bool) -> None:
    assert bool(_moving(action)) is moves


def test_nothing_in_a_template_moves() -> None:
    files = [file for file in (CHART / "templates").rglob("*") if file.is_file()]
    files.remove(CHART / "templates" / "_guard.tpl")  # looks into the cluster only to refuse
    assert len(files) > 10
    assert {file.name: found for file in files if (found := _moving(file.read_text()))} == {}


def _moving(text: str) -> list[str]:
    actions = re.findall(r"\{\{-?(?!-? ?/\*)(.*?)\}\}", text, flags=re.DOTALL)
    return [found for action in actions for found in MOVING.findall(action)]


@pytest.mark.parametrize("file", CI, ids=lambda file: file.stem)
def test_restricted_pod_security(file: Path) -> None:
    found = pods(rendered(values(file)))
    assert found
    for name, spec in found:
        context = spec["securityContext"]
        assert context["runAsNonRoot"] is True, name
        assert context["runAsUser"] == 65532, name
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys(), name
        assert all({"hostPath"}.isdisjoint(volume) for volume in spec["volumes"]), name
        assert spec["automountServiceAccountToken"] is ("serviceAccountName" in spec), name
        assert spec["enableServiceLinks"] is False, name
        for container in spec["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }, name
            assert container["resources"]["requests"].keys() == {"cpu", "memory"}, name
            assert "memory" in container["resources"]["limits"], name


@pytest.mark.parametrize("file", CI, ids=lambda file: file.stem)
def test_labels_and_namespaces(file: Path) -> None:
    for each in rendered(values(file)):
        meta, labels = each["metadata"], each["metadata"]["labels"]
        assert labels["helm.sh/chart"].startswith("llmqueue-")
        assert labels["app.kubernetes.io/instance"] == "test"
        assert labels["app.kubernetes.io/managed-by"] == "Helm"
        assert labels["app.kubernetes.io/part-of"] == "llmqueue"
        wide = each["kind"] in ("ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition")
        assert meta.get("namespace") == (None if wide else "team")


def test_a_new_version_of_the_chart_alone_restarts_no_pod() -> None:
    """Pods' labels do not name it; the operator's image is that of the version."""
    for each in rendered():
        if each["kind"] == "Deployment":
            labels = each["spec"]["template"]["metadata"]["labels"]
            assert not {"helm.sh/chart", "app.kubernetes.io/version"} & labels.keys()
            assert each["spec"]["selector"]["matchLabels"].items() <= labels.items()


@pytest.mark.parametrize(
    "options",
    [[], [f"--set=fullnameOverride={'f' * 63}"], [f"--set=nameOverride={'o' * 63}"]],
    ids=["long release", "long fullname", "long name"],
)
def test_names_are_never_too_long(options: list[str]) -> None:
    on = [values(CHART / "ci" / "monitoring-values.yaml"), "--set=networkPolicies.enabled=true",
          "--set=scope=Cluster", "--set=trialValkey.persistence.enabled=true"]  # fmt: skip
    objects = rendered(*on, *options, release=LONG, namespace="s" * 63)
    for each in objects:
        limit = 253 if each["kind"].startswith(("ClusterRole", "CustomResource")) else 63
        assert len(each["metadata"]["name"]) <= limit
        for value in each["metadata"]["labels"].values():
            assert len(value) <= 63
    names = [(each["kind"], each["metadata"]["name"]) for each in objects]
    assert len(names) == len(set(names))


def test_long_names_that_begin_alike_stay_apart() -> None:
    def name(override: str) -> set[str]:
        return {each["metadata"]["name"] for each in rendered(f"--set=fullnameOverride={override}")}

    shared = {"llmqueues.llmqueue.dev"}
    assert name("f" * 62 + "a") & name("f" * 62 + "b") == shared


@pytest.mark.parametrize(
    ("release", "options", "name"),
    [
        ("llmqueue", [], "llmqueue-operator"),
        ("my-llmqueue", [], "my-llmqueue-operator"),
        ("a", [], "a-llmqueue-operator"),
        ("a", ["--set=nameOverride=q"], "a-q-operator"),
        ("a", ["--set=fullnameOverride=jobs"], "jobs-operator"),
    ],
)
def test_names_of_a_release(release: str, options: list[str], name: str) -> None:
    operator = [
        each for each in rendered(*options, release=release) if each["kind"] == "Deployment"
    ]
    assert operator[0]["metadata"]["name"] == name


def _identities(objects: list[Object]) -> set[tuple[str, str, str]]:
    return {
        (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"])
        for each in objects
        if each["kind"] != "CustomResourceDefinition"
    }


@pytest.mark.parametrize(
    ("one", "other"),
    [(("a", "x"), ("a", "y")), (("a", "x"), ("b", "x"))],
    ids=["one name in two namespaces", "two names in one namespace"],
)
def test_two_releases_share_no_object(one: tuple[str, str], other: tuple[str, str]) -> None:
    """Two in one namespace refuse each other by the name of their installation."""
    found = [
        rendered("--set=scope=Cluster", release=release, namespace=namespace)
        for release, namespace in (one, other)
    ]
    assert not _identities(found[0]) & _identities(found[1])


def test_the_installation_is_the_release() -> None:
    for release in ("a", "b"):
        (operator, *_) = [e for e in rendered(release=release) if e["kind"] == "Deployment"]
        environment = operator["spec"]["template"]["spec"]["containers"][0]["env"]
        assert {"name": "LLMQUEUE_OPERATOR_INSTALLATION", "value": release} in environment


@pytest.mark.parametrize(("replicas", "there"), [(1, False), (2, True)])
def test_a_budget_for_disruptions_only_where_one_may_go(replicas: int, there: bool) -> None:
    objects = rendered(f"--set=operator.replicas={replicas}")
    found = [each["spec"] for each in objects if each["kind"] == "PodDisruptionBudget"]
    assert bool(found) == there
    assert all(each["maxUnavailable"] == 1 for each in found)
    off = rendered("--set=operator.replicas=2", "--set=podDisruptionBudget.enabled=false")
    assert "PodDisruptionBudget" not in {each["kind"] for each in off}
