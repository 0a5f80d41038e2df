"""LLMQueue → Deployment: what users and the cluster's policies count on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmqueue.settings import WorkerSettings
from llmqueue.spec import LLMQueue
from llmqueue_operator.names import DIGEST_ANNOTATION
from llmqueue_operator.pods import WorkerRedis, worker_deployment
from llmqueue_operator.pods.deployment import digest
from support.clusterobjects import llmqueue

SECRET = WorkerRedis(secret="redis-secret", key="url")
PLAIN = WorkerRedis(url="redis://valkey:6379/0")
Object = dict[str, Any]


def queue(**sections: Any) -> LLMQueue:
    raw = llmqueue(**sections)
    return LLMQueue.model_validate(
        {"apiVersion": "llmqueue.dev/v1alpha1", "kind": "LLMQueue", **raw}
    )


KEYED = {"type": "openai", "credentialsSecretRef": {"name": "openai", "key": "k"}}


def document(*, redis: WorkerRedis = PLAIN, **sections: Any) -> Object:
    return worker_deployment(
        queue(**sections), image="worker:1", pull_policy="Never", redis=redis, log_level="debug"
    )


def pod_spec(made: Object) -> Object:
    return made["spec"]["template"]["spec"]


def worker(made: Object) -> Object:
    (found,) = [c for c in pod_spec(made)["containers"] if c["name"] == "worker"]
    return found


def variables(made: Object) -> dict[str, str]:
    return {each["name"]: each.get("value", "") for each in worker(made)["env"]}


def walk(value: Any) -> Iterator[tuple[str, Any]]:
    """Every (name, value) at any depth."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield name, inner
            yield from walk(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from walk(inner)


CASES = pytest.mark.parametrize(
    "made",
    [
        pytest.param(document(), id="smallest"),
        pytest.param(document(redis=SECRET, provider=KEYED), id="with Secrets"),
        pytest.param(
            document(
                redis=SECRET,
                provider=KEYED,
                worker={"podTemplate": {"spec": {"nodeSelector": {"disk": "fast"}}}},
            ),
            id="with a pod template",
        ),
    ],
)


def test_whose_it_is() -> None:
    made = document()
    assert made["metadata"]["name"] == "q-worker"
    assert made["metadata"]["namespace"] == "default"
    (owner,) = made["metadata"]["ownerReferences"]
    assert owner == {
        "apiVersion": "llmqueue.dev/v1alpha1",
        "kind": "LLMQueue",
        "name": "q",
        "uid": "uid-q",
        "controller": True,
        "blockOwnerDeletion": False,
    }


@CASES
def test_the_selector_finds_the_pods(made: Object) -> None:
    selector = made["spec"]["selector"]["matchLabels"]
    assert selector == {"llmqueue.dev/queue": "q"}
    assert selector.items() <= made["spec"]["template"]["metadata"]["labels"].items()
    assert selector.items() <= made["metadata"]["labels"].items(), "the watch selects by it"


@CASES
def test_replicas_are_another_manager_s(made: Object) -> None:
    """S23: applying the whole object again must not touch them."""
    assert "replicas" not in made["spec"]


# ---------------------------------------------------------------- safety


@CASES
def test_restricted_pod_security(made: Object) -> None:
    """The fields that the level `restricted` asks for."""
    spec = pod_spec(made)
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] > 0
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for field in ("hostNetwork", "hostPID", "hostIPC"):
        assert not spec.get(field)
    for container in spec["containers"]:
        context = container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert not context.get("privileged")
        assert context["readOnlyRootFilesystem"] is True
        assert all("hostPort" not in port for port in container.get("ports", ()))
    allowed = {"name", "secret", "emptyDir"}
    assert all(volume.keys() <= allowed for volume in spec["volumes"])


@CASES
def test_no_access_to_the_api_server(made: Object) -> None:
    assert pod_spec(made)["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in pod_spec(made)


@CASES
def test_a_secret_is_never_frozen_or_copied(made: Object) -> None:
    """A file mounted by subPath, and a variable from a Secret, never change while the pod lives."""
    names = [name for name, _ in walk(made)]
    for forbidden in ("subPath", "subPathExpr", "secretKeyRef", "envFrom", "secretRef"):
        assert forbidden not in names
    mounts = [m for m in worker(made)["volumeMounts"] if m["name"] != "tmp"]
    assert all(mount["readOnly"] for mount in mounts)


@CASES
def test_every_mount_has_its_volume(made: Object) -> None:
    volumes = [volume["name"] for volume in pod_spec(made)["volumes"]]
    assert len(volumes) == len(set(volumes))
    assert {mount["name"] for mount in worker(made)["volumeMounts"]} == set(volumes)


def test_secrets_are_files() -> None:
    made = document(redis=SECRET, provider=KEYED)
    volumes = {each["name"]: each for each in pod_spec(made)["volumes"]}
    assert volumes["credentials"]["secret"] == {
        "secretName": "openai",
        "items": [{"key": "k", "path": "api-key"}],
    }
    assert volumes["redis"]["secret"]["secretName"] == "redis-secret"
    mounts = {each["name"]: each["mountPath"] for each in worker(made)["volumeMounts"]}
    assert variables(made)["LLMQUEUE_API_KEY_FILE"] == f"{mounts['credentials']}/api-key"
    assert variables(made)["LLMQUEUE_REDIS_URL_FILE"] == f"{mounts['redis']}/url"
    assert "LLMQUEUE_REDIS_URL" not in variables(made)
    keyless = document(provider={"type": "openai"})
    assert "LLMQUEUE_API_KEY_FILE" not in variables(keyless)
    assert [each["name"] for each in pod_spec(keyless)["volumes"]] == ["tmp"]


# ---------------------------------------------------------------- what the worker reads


@CASES
def test_every_variable_is_one_that_workers_read(made: Object) -> None:
    read = {f"LLMQUEUE_{name.upper()}" for name in WorkerSettings.model_fields}
    given = [each["name"] for each in worker(made)["env"]]
    assert len(given) == len(set(given))
    assert {name for name in given if name.startswith("LLMQUEUE_")} <= read


@CASES
def test_workers_understand_their_variables(made: Object, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in variables(made).items():
        monkeypatch.setenv(name, value or "pod-uid")
    settings = WorkerSettings()  # type: ignore[call-arg]
    assert (settings.queue, settings.health_port, settings.log_level) == (
        "default/q",
        8080,
        "debug",
    )
    (uid,) = [each for each in worker(made)["env"] if each["name"] == "LLMQUEUE_WORKER_UID"]
    assert uid["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.uid"


@CASES
def test_probes_ask_the_port_that_is_served(made: Object) -> None:
    (port,) = worker(made)["ports"]
    assert str(port["containerPort"]) == variables(made)["LLMQUEUE_HEALTH_PORT"]
    for probe, path in (("livenessProbe", "/livez"), ("readinessProbe", "/readyz")):
        assert worker(made)[probe]["httpGet"] == {"path": path, "port": port["name"]}
    assert worker(made)["livenessProbe"]["timeoutSeconds"] > 1


@pytest.mark.parametrize(("drain", "margin"), [(300, 10), (600, 30), (240, 1)])
def test_the_kubelet_waits_longer_than_a_drain(drain: int, margin: int) -> None:
    """S8, S10: grace = drain and margin; the worker is PID 1 and there is no preStop."""
    grace = {"drainSeconds": drain, "shutdownMarginSeconds": margin}
    made = document(gracePeriods=grace)
    assert pod_spec(made)["terminationGracePeriodSeconds"] == drain + margin
    assert variables(made)["LLMQUEUE_DRAIN_SECONDS"] == str(drain)
    assert "lifecycle" not in worker(made)
    assert "command" not in worker(made)


@pytest.mark.parametrize(("most", "surge"), [(1, 1), (4, 1), (5, 2), (20, 5), (1000, 250)])
def test_a_rollout_adds_few_pods_and_takes_none_away(most: int, surge: int) -> None:
    """S25: surge capped, in numbers."""
    strategy = document(scaling={"maxReplicas": most})["spec"]["strategy"]
    assert strategy["rollingUpdate"] == {"maxSurge": surge, "maxUnavailable": 0}


def test_the_image() -> None:
    assert worker(document())["image"] == "worker:1"
    assert worker(document(worker={"image": "own:2"}))["image"] == "own:2"
    assert worker(document())["imagePullPolicy"] == "Never"


def test_the_user_s_environment_and_resources() -> None:
    resources = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": 2}}
    env = [
        {"name": "TEAM", "value": "search"},
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
    ]
    made = document(worker={"env": env, "resources": resources})
    assert worker(made)["env"][-2:] == env
    assert worker(made)["resources"] == resources
    assert "resources" not in worker(document())


# ---------------------------------------------------------------- digest


def test_the_digest_is_of_the_content() -> None:
    made = document()
    noted = made["metadata"].pop("annotations")[DIGEST_ANNOTATION]
    assert digest(made) == noted
    shuffled = json.loads(json.dumps(made), object_pairs_hook=lambda p: dict(reversed(p)))
    assert digest(shuffled) == noted
    others = [document(scaling={"maxReplicas": 99}), document(worker={"image": "own:2"})]
    digests = {each["metadata"]["annotations"][DIGEST_ANNOTATION] for each in others}
    assert len({noted, *digests}) == 3


# ---------------------------------------------------------------- the user's pod template


def templated(spec: Any = None, *, metadata: Any = None, **sections: Any) -> Object:
    template: Object = {}
    if metadata is not None:
        template["metadata"] = metadata
    if spec is not None:
        template["spec"] = spec
    return document(worker={"podTemplate": template}, **sections)


def test_a_pod_template_adds() -> None:
    made = templated(
        {
            "nodeSelector": {"disk": "fast"},
            "tolerations": [{"key": "gpu"}],
            "containers": [
                {"name": "worker", "volumeMounts": [{"name": "ca", "mountPath": "/ca"}]},
                {"name": "proxy", "image": "proxy:1"},
            ],
            "volumes": [{"name": "ca", "configMap": {"name": "ca"}}],
        },
        metadata={"annotations": {"team": "a"}, "labels": {"cost": "x"}},
        provider=KEYED,
    )
    plain = document(provider=KEYED)
    assert [c["name"] for c in pod_spec(made)["containers"]] == ["worker", "proxy"]
    assert worker(made)["volumeMounts"] == [
        *worker(plain)["volumeMounts"],
        {"name": "ca", "mountPath": "/ca"},
    ]
    assert pod_spec(made)["volumes"][:-1] == pod_spec(plain)["volumes"]
    assert pod_spec(made)["nodeSelector"] == {"disk": "fast"}
    assert made["spec"]["template"]["metadata"]["annotations"] == {"team": "a"}
    assert made["spec"]["template"]["metadata"]["labels"]["cost"] == "x"
    assert worker(made)["livenessProbe"] == worker(plain)["livenessProbe"]


def test_labels_that_select_the_pods_stay() -> None:
    """A pod without its label would be nobody's, and the Deployment would be refused."""
    ours = document()["spec"]["template"]["metadata"]["labels"]
    for labels in ({"llmqueue.dev/queue": "other"}, dict.fromkeys(ours), None):
        made = templated(metadata={"labels": labels})
        assert made["spec"]["template"]["metadata"]["labels"] == ours


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
PARTS = st.sampled_from(["volumes", "initContainers", "securityContext", "nodeSelector", "odd"])


@given(
    spec=st.dictionaries(PARTS, JSON, max_size=3),
    metadata=st.dictionaries(st.sampled_from(["labels", "annotations"]), JSON),
    extra=st.dictionaries(st.sampled_from(["env", "volumeMounts", "ports"]), JSON),
)
def test_nonsense_in_a_pod_template_is_the_api_server_s_to_refuse(
    spec: Object, metadata: Object, extra: Object
) -> None:
    """The CRD lets any shape through; the user is to hear from the server what is wrong with it,
    not to wait for an operator that fails at it again and again."""
    containers = [{"name": "worker", **extra}]
    made = templated({**spec, "containers": containers}, metadata=metadata)
    assert made["spec"]["template"]["metadata"]["labels"]["llmqueue.dev/queue"] == "q"
    assert worker(made)["image"] == "worker:1"


@pytest.mark.parametrize(
    "url",
    ["redis://:geheim@valkey:6379/0", "rediss://app:geheim@valkey", "redis://u:geheim@h/0"],
)
def test_never_a_password(url: str, tmp_path: Path) -> None:
    """Whatever the operator itself connects with: the template names files only."""
    from llmqueue_operator.connections import Connections
    from llmqueue_operator.errors import UnusableConnection

    (tmp_path / "default").mkdir()
    (tmp_path / "default" / "url").write_text(url)
    connections = Connections(tmp_path)
    with pytest.raises(UnusableConnection) as refused:
        connections.worker_redis(queue())
    assert "geheim" not in str(refused.value)
    (tmp_path / "default" / "worker-secret-name").write_text("workers\n")
    own = queue(redis={"workerSecretRef": {"name": "mine"}})
    for each in (queue(), own):
        made = worker_deployment(
            each, image="i", pull_policy="Never", redis=connections.worker_redis(each)
        )
        assert "geheim" not in json.dumps(made)
