"""The operator's environment, and the manifests that give it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from llmqueue_operator.settings import OperatorSettings

ROOT = Path(__file__).parents[3]
NEEDED = {"NAMESPACE": "llmqueue", "POD": "operator-1", "WORKER_IMAGE": "worker:1"}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name, value in NEEDED.items():
        monkeypatch.setenv(f"LLMQUEUE_OPERATOR_{name}", value)
    return monkeypatch


def settings() -> OperatorSettings:
    return OperatorSettings()  # type: ignore[call-arg]


def test_what_is_needed_is_enough() -> None:
    found = settings()
    assert (found.namespace, found.pod, found.worker_image) == (
        "llmqueue",
        "operator-1",
        "worker:1",
    )
    assert found.watched == "llmqueue"
    assert found.installation == "llmqueue"


def test_all_namespaces(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("LLMQUEUE_OPERATOR_WATCH", "Cluster")
    assert settings().watched is None
    assert settings().namespace == "llmqueue"


@pytest.mark.parametrize("name", sorted(NEEDED))
@pytest.mark.parametrize("value", [None, ""])
def test_what_is_missing_is_named(
    environment: pytest.MonkeyPatch, name: str, value: str | None
) -> None:
    environment.delenv(f"LLMQUEUE_OPERATOR_{name}")
    if value is not None:
        environment.setenv(f"LLMQUEUE_OPERATOR_{name}", value)
    with pytest.raises(ValidationError) as refused:
        settings()
    assert [error["loc"] for error in refused.value.errors()] == [(name.lower(),)]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("WATCH", "Everything"),
        ("WORKER_PULL_POLICY", "Sometimes"),
        ("WORKER_LOG_LEVEL", "loud"),
        ("HEALTH_PORT", "70000"),
        ("RESYNC_SECONDS", "0"),
        ("INSTALLATION", ""),
    ],
)
def test_refused(environment: pytest.MonkeyPatch, name: str, value: str) -> None:
    environment.setenv(f"LLMQUEUE_OPERATOR_{name}", value)
    with pytest.raises(ValidationError):
        settings()


# ---------------------------------------------------------------- manifests


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((ROOT / "manifests" / name).read_text()))


def test_the_manifest_gives_what_is_needed_and_nothing_unknown() -> None:
    (deployment,) = documents("operator.yaml")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    given = {each["name"].removeprefix("LLMQUEUE_OPERATOR_") for each in container["env"]}
    known = {name.upper() for name in OperatorSettings.model_fields}
    assert NEEDED.keys() <= given <= known
    (port,) = container["ports"]
    assert port["containerPort"] == settings().health_port
    mounts = {Path(mount["mountPath"]) for mount in container["volumeMounts"]}
    assert settings().connections_dir / "default" in mounts


def test_the_operator_s_pods_keep_restricted_pod_security() -> None:
    (deployment,) = documents("operator.yaml")
    spec = deployment["spec"]["template"]["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in spec["containers"]:
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert all("subPath" not in mount for mount in container["volumeMounts"])
