"""Values that are wrong are refused, in words that say what to do."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from llmqueue_operator.settings import OperatorSettings
from support.rendering import CHART, helm, refusal, rendered, rules

NO_TRIAL = "--set=trialValkey.enabled=false"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--set=replicas=3"], "additional properties 'replicas' not allowed"),
        (
            ["--set=operator.replica=3"],
            "at '/operator': additional properties 'replica' not allowed",
        ),
        (["--set=operator.replicas=two"], "at '/operator/replicas': got string, want integer"),
        (["--set=scope=Both"], "at '/scope': value must be one of 'Namespace', 'Cluster'"),
        (["--set=crds.install=maybe"], "at '/crds/install': got string, want boolean"),
        (["--set=worker.logLevel=loud"], "at '/worker/logLevel': value must be one of 'debug',"),
        (
            ["--set=worker.image.pullPolicy=no"],
            "at '/worker/image/pullPolicy': value must be one of",
        ),
        (
            ["--set=operator.image.tag=a b"],
            "at '/operator/image/tag': 'a b' does not match pattern",
        ),
        (["--set=operator.image.digest=abc"], "at '/operator/image/digest': 'abc' does not match"),
        (
            ["--set=fullnameOverride=LLM_Queue"],
            "at '/fullnameOverride': 'LLM_Queue' does not match",
        ),
        (["--set=redis.password=x"], "at '/redis': additional properties 'password' not allowed"),
        (["--set=redis.connections.a.url=x"], "missing property 'existingSecret'"),
        (["--set=redis.connections.A.existingSecret=x"], "invalid propertyName 'A'"),
        (
            ["--set=metrics.podMonitor.interval=soon"],
            "at '/metrics/podMonitor/interval': 'soon' does",
        ),
        (
            ["--set=networkPolicies.redisPorts={70000}"],
            "at '/networkPolicies/redisPorts/0': maximum",
        ),
        (
            ["--set=trialValkey.maxMemory=much"],
            "at '/trialValkey/maxMemory': 'much' does not match",
        ),
        ([NO_TRIAL], "no Redis: give redis.url (without a password) or redis.existingSecret"),
        (
            ["--set=redis.url=redis://r", "--set=redis.existingSecret=s"],
            "redis.url and redis.existingSecret both name the connection 'default': give one of",
        ),
        (
            ["--set=redis.connections.default.existingSecret=x"],
            "the one named 'default' is redis.url or redis.existingSecret",
        ),
        (["--set=redis.url=valkey:6379"], "redis.url must be like redis://host:6379/0"),
        (["--set=redis.url=http://valkey"], "redis.url must be like redis://host:6379/0"),
        (["--set=redis.url=redis://"], "redis.url must be like redis://host:6379/0"),
        (["--set=serviceAccount.create=false"], "name the ServiceAccount to use in serviceAccount"),
        (
            ["--set=operator.extraEnv[0].name=LLMQUEUE_OPERATOR_WORKER_IMAGE"],
            "operator.extraEnv can't set LLMQUEUE_OPERATOR_WORKER_IMAGE, which is said by worker.image",
        ),
        (
            ["--set=operator.extraEnv[0].name=llmqueue_operator_health_port"],
            "operator.extraEnv can't set LLMQUEUE_OPERATOR_HEALTH_PORT, which is said by the chart's",
        ),
        (["--set=trialValkey.image.tag="], "trialValkey.image.tag is empty: name one, or"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_refused(options: list[str], said: str) -> None:
    assert said in refusal(*options)


def test_further_variables_are_those_that_the_chart_does_not_set() -> None:
    """Of all that the operator reads."""
    settings = {f"LLMQUEUE_OPERATOR_{name.upper()}" for name in OperatorSettings.model_fields}
    free = {"LLMQUEUE_OPERATOR_RESYNC_SECONDS"}
    for name in settings - free:
        assert f"can't set {name}" in refusal(f"--set=operator.extraEnv[0].name={name}")
    given = [f"--set=operator.extraEnv[{n}].name={name}" for n, name in enumerate([*free, "TZ"])]
    operator = next(each for each in rendered(*given) if each["kind"] == "Deployment")
    names = [e["name"] for e in operator["spec"]["template"]["spec"]["containers"][0]["env"]]
    assert {*free, "TZ"} <= set(names)
    assert len(names) == len(set(names))
    assert settings - free - {
        "LLMQUEUE_OPERATOR_CONNECTIONS_DIR",
        "LLMQUEUE_OPERATOR_HEALTH_PORT",
    } <= set(names)


def test_a_value_that_was_taken_away_is_missed_by_name() -> None:
    """`null` removes a default: nothing is to be rendered with a hole in it."""
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    # Without them Kubernetes or the chart has a default that means the same.
    optional = re.compile(
        r"rules\.alerts\.\w+(?:\.for)?$|.*\bresources\b|(?:.*\.)?(?:labels|annotations|podLabels|podAnnotations"
        r"|nodeSelector|affinity|enabled|imagePullSecrets|tolerations|topologySpreadConstraints"
        r"|extraEnv|tag|digest|registry|nameOverride|fullnameOverride|name|url|existingSecret"
        r"|storageClassName|folder|priorityClassName|metricsFrom|workerEgress)$"
    )
    schema = json.loads((CHART / "values.schema.json").read_text())
    needed = set(_required(schema, schema, ""))
    leaves = {path for path in _paths(defaults) if not optional.match(path)}
    assert leaves - needed == set()
    assert "missing property 'scope'" in refusal("--set=scope=null")
    assert "at '/operator': missing property 'logLevel'" in refusal("--set=operator.logLevel=null")


def _paths(values: dict[str, Any], above: str = "") -> Iterator[str]:
    for key, value in values.items():
        yield f"{above}{key}"
        if isinstance(value, dict):
            yield from _paths(value, f"{above}{key}.")


def _required(schema: dict[str, Any], root: dict[str, Any], above: str) -> Iterator[str]:
    for name, of in schema.get("properties", {}).items():
        path = f"{above}{name}"
        if name in schema.get("required", ()):
            yield path
        reference = of.get("$ref", "").rpartition("/")[2]
        yield from _required(root["definitions"].get(reference, of), root, f"{path}.")


@pytest.mark.parametrize("enabled", [True, False])
def test_a_chart_may_depend_on_this_one_with_a_condition(tmp_path: Path, enabled: bool) -> None:
    """Its value `llmqueue.enabled` is a value of this chart too."""
    shutil.copytree(CHART, tmp_path / "charts" / "llmqueue")
    dependency = {"name": "llmqueue", "version": "*", "condition": "llmqueue.enabled"}
    (tmp_path / "Chart.yaml").write_text(
        yaml.safe_dump(
            {"apiVersion": "v2", "name": "all", "version": "1.0.0", "dependencies": [dependency]}
        )
    )
    (tmp_path / "values.yaml").write_text(yaml.safe_dump({"llmqueue": {"enabled": enabled}}))
    done = subprocess.run(
        [helm(), "template", "test", str(tmp_path), "--kube-version=1.33.0"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert ("kind: Deployment" in done.stdout) is enabled


@pytest.mark.parametrize(
    "url",
    [
        "redis://:hush@valkey:6379/0",
        "redis://user:hush@valkey:6379/0",
        "rediss+sentinel://:hu/sh@a:1\\,b:1/primary",
        "redis://valkey:6379/0?password=hush",
        "redis+sentinel://a/primary?min_replicas=1&sentinel_password=hush",
    ],
)
def test_a_password_in_the_url_is_refused_and_not_repeated(url: str) -> None:
    said = refusal(f"--set=redis.url={url}")
    assert (
        "put the URL into a Secret under the key 'url' and name it in redis.existingSecret" in said
    )
    assert "hush" not in said
    assert "sh@" not in said


@pytest.mark.parametrize(
    "url",
    [
        "redis://valkey:6379/0",
        "rediss://valkey.example/1?ssl_cert_reqs=none",
        "redis+sentinel://a:26379\\,b:26379/primary/0",
        "rediss+cluster://[fd00::1]:6379",
    ],
)
def test_a_url_is_taken_as_it_is(url: str) -> None:
    objects = rendered(f"--set=redis.url={url}", NO_TRIAL)
    (found,) = [each for each in objects if each["kind"] == "ConfigMap"]
    assert found["data"] == {"url": url.replace("\\", "")}


@pytest.mark.parametrize(
    ("options", "image"),
    [
        ([], "llmqueue/operator:"),
        (["--set=image.registry=registry.example/team/"], "registry.example/team/operator:"),
        (["--set=image.registry=", "--set=operator.image.repository=r/o"], "r/o:"),
        (["--set=operator.image.tag=1.2"], "llmqueue/operator:1.2"),
        (
            [f"--set=operator.image.digest=sha256:{'a' * 64}", "--set=operator.image.tag=1.2"],
            f"llmqueue/operator@sha256:{'a' * 64}",
        ),
    ],
    ids=["default", "registry", "no registry", "tag", "digest"],
)
def test_images(options: list[str], image: str) -> None:
    """`make images` without options and the chart without values mean the same ones."""
    objects = rendered(*options)
    operator = next(
        each for each in objects if each["metadata"]["name"] == "test-llmqueue-operator"
        and each["kind"] == "Deployment"
    )  # fmt: skip
    (container,) = operator["spec"]["template"]["spec"]["containers"]
    assert container["image"].startswith(image)
    worker = {e["name"]: e.get("value") for e in container["env"]}["LLMQUEUE_OPERATOR_WORKER_IMAGE"]
    if options and "registry=" in options[0]:
        assert worker.startswith(options[0].rpartition("=")[2].rstrip("/"))
    else:
        assert worker.startswith("llmqueue/worker:")


@pytest.mark.parametrize(
    ("options", "runs"),
    [
        ([], True),
        (["--set=redis.url=redis://r"], False),
        (["--set=redis.existingSecret=s"], False),
        (["--set=redis.connections.b.existingSecret=s"], True),
    ],
    ids=["defaults", "url", "secret", "only a further connection"],
)
def test_the_trial_valkey_runs_only_where_no_redis_is_named(options: list[str], runs: bool) -> None:
    trial = [
        each["kind"]
        for each in rendered(*options)
        if each["metadata"]["labels"].get("llmqueue.dev/trial") == "true"
    ]
    assert trial == (["Service", "Deployment"] if runs else [])


def test_the_trial_valkey_keeps_its_volume() -> None:
    objects = rendered("--set=trialValkey.persistence.enabled=true")
    (claim,) = [each for each in objects if each["kind"] == "PersistentVolumeClaim"]
    assert claim["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    valkey = next(each for each in objects if "trial" in each["metadata"]["name"] and "spec" in each
                  and each["kind"] == "Deployment")  # fmt: skip
    (volume,) = valkey["spec"]["template"]["spec"]["volumes"]
    assert volume["persistentVolumeClaim"] == {"claimName": claim["metadata"]["name"]}
    assert valkey["spec"]["strategy"] == {"type": "Recreate"}


def test_connections_are_mounted_where_the_operator_looks() -> None:
    longest = "c" * 63
    objects = rendered(
        "--set=redis.existingSecret=main", f"--set=redis.connections.{longest}.existingSecret=other"
    )
    pods = [
        each["spec"] if each["kind"] == "Pod" else each["spec"]["template"]["spec"]
        for each in objects
        if each["kind"] in ("Pod", "Deployment")
    ]
    assert len(pods) == 2
    for spec in pods:
        sources = {each["name"]: each for each in spec["volumes"]}
        mounts = {
            each["mountPath"].removeprefix("/etc/llmqueue/connections/"): sources[each["name"]]
            for each in spec["containers"][0]["volumeMounts"]
            if each["mountPath"] != "/tmp"
        }
        assert {name: each["secret"]["secretName"] for name, each in mounts.items()} == {
            "default": "main",
            longest: "other",
        }
        assert all(len(name) <= 63 for name in sources)


def test_labels_of_the_values_stand_beside_ours() -> None:
    """Each key once. What Prometheus selects by is theirs to say, what selects pods is not."""
    name, folder = "app\\.kubernetes\\.io/name=theirs", "grafana_folder=theirs"
    on = ["rules", "dashboards", "metrics.podMonitor", "metrics.operatorMonitor"]
    labels = ["rules.labels", "metrics.podMonitor.labels", "metrics.operatorMonitor.labels"]
    objects = rendered(
        *(f"--set={each}.enabled=true" for each in on),
        *(f"--set={each}.{name}" for each in (*labels, "operator.podLabels")),
        *("--set=dashboards.folder=ours", f"--set=dashboards.annotations.{folder}"),
    )
    theirs = {
        each["kind"] for each in objects
        if each["metadata"]["labels"]["app.kubernetes.io/name"] == "theirs"
    }  # fmt: skip
    assert theirs == {"PodMonitor", "PrometheusRule"}
    for each in objects:
        if each["kind"] == "Deployment":
            spec = each["spec"]
            assert (
                spec["selector"]["matchLabels"].items()
                <= spec["template"]["metadata"]["labels"].items()
            )
    boards = [e["metadata"] for e in objects if "dashboard" in e["metadata"]["name"]]
    assert {each["annotations"]["grafana_folder"] for each in boards} == {"ours"}
    assert {each["labels"]["grafana_dashboard"] for each in boards} == {"1"}


def test_no_alert_at_all_is_a_rule_without_groups() -> None:
    alerts = yaml.safe_load((CHART / "values.yaml").read_text())["rules"]["alerts"]
    off = [f"--set=rules.alerts.{name}.enabled=false" for name in alerts]
    assert rules(*off) == {"groups": []}
