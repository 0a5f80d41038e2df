"""Who is scraped, and who may reach whom: selectors of the chart against the pods there are."""

from __future__ import annotations

from typing import Any

import pytest

from llmqueue.spec import LLMQueue
from llmqueue_operator.pods import WorkerRedis, worker_deployment
from support.clusterobjects import llmqueue
from support.rendering import rendered

Object = dict[str, Any]
ON = ("--set=metrics.podMonitor.enabled=true", "--set=metrics.operatorMonitor.enabled=true")
POLICIES = "--set=networkPolicies.enabled=true"
WORKERS, OPERATOR = "test-llmqueue-workers", "test-llmqueue-operator"
CHECK, VALKEY = "test-llmqueue-check", "test-llmqueue-trial-valkey"


def named(kind: str, *options: str) -> dict[str, Object]:
    """Name → spec."""
    return {
        each["metadata"]["name"]: each["spec"]
        for each in rendered(*options)
        if each["kind"] == kind
    }


def pod_labels() -> dict[str, dict[str, str]]:
    """Of the pods of a release, the workers as the operator makes them, and of a stranger."""
    queue = LLMQueue.model_validate(
        {"apiVersion": "llmqueue.dev/v1alpha1", "kind": "LLMQueue", **llmqueue()}
    )
    worker = worker_deployment(
        queue, image="worker:1", pull_policy="Never", redis=WorkerRedis(url="redis://valkey")
    )
    made = {name: spec["template"] for name, spec in named("Deployment").items()}
    labels = {name: template["metadata"]["labels"] for name, template in made.items()}
    (check,) = [each for each in rendered() if each["kind"] == "Pod"]
    return {
        "operator": labels[OPERATOR],
        "valkey": labels[VALKEY],
        "check": check["metadata"]["labels"],
        "worker": worker["spec"]["template"]["metadata"]["labels"],
        "producer": {"llmqueue.dev/producer": "true"},
        "stranger": {"app": "web"},
    }


def selected(selector: Object) -> set[str]:
    """Pods whose labels match; matchLabels is all that the chart uses."""
    assert selector.keys() <= {"matchLabels"}
    wanted = selector.get("matchLabels", {})
    return {name for name, labels in pod_labels().items() if wanted.items() <= labels.items()}


def sources(rule: Object) -> set[str]:
    """Pods of the release's namespace, and the producer, that a rule lets in."""
    found: set[str] = set()
    for peer in rule["from"]:
        found |= selected(peer.get("podSelector", {}))
    return found


def test_monitors_select_the_pods_that_there_are() -> None:
    monitors = named("PodMonitor", *ON)
    assert selected(monitors[WORKERS]["selector"]) == {"worker"}
    assert selected(monitors[OPERATOR]["selector"]) == {"operator"}
    for each in monitors.values():
        assert [endpoint["port"] for endpoint in each["podMetricsEndpoints"]] == ["metrics"]


def test_monitors_are_off_by_default() -> None:
    assert named("PodMonitor") == {} == named("NetworkPolicy")


@pytest.mark.parametrize(
    ("scope", "namespaces"), [("Namespace", {"matchNames": ["team"]}), ("Cluster", {"any": True})]
)
def test_where_workers_are_scraped(scope: str, namespaces: Object) -> None:
    monitors = named("PodMonitor", *ON, f"--set=scope={scope}")
    assert monitors[WORKERS]["namespaceSelector"] == namespaces
    assert monitors[OPERATOR]["namespaceSelector"] == {"matchNames": ["team"]}


def test_labels_of_samples() -> None:
    monitors = named("PodMonitor", *ON)
    (operator,) = monitors[OPERATOR]["podMetricsEndpoints"]
    (worker,) = monitors[WORKERS]["podMetricsEndpoints"]
    assert operator["honorLabels"] is True
    assert "honorLabels" not in worker
    jobs = [each["relabelings"][0]["replacement"] for each in (operator, worker)]
    assert jobs == [OPERATOR, "llmqueue-worker"]
    assert worker["relabelings"][1] == {
        "action": "replace",
        "sourceLabels": ["__meta_kubernetes_pod_label_llmqueue_dev_queue"],
        "targetLabel": "queue",
    }
    assert all(each["action"] == "replace" for each in worker["relabelings"]), "pods are dropped"
    assert worker["filterRunning"] is True


def test_each_policy_is_of_one_kind_of_pod() -> None:
    policies = named("NetworkPolicy", POLICIES)
    assert {name: selected(each["podSelector"]) for name, each in policies.items()} == {
        OPERATOR: {"operator"},
        CHECK: {"check"},
        WORKERS: {"worker"},
        VALKEY: {"valkey"},
    }
    assert all(each["policyTypes"] == ["Ingress", "Egress"] for each in policies.values())


def test_who_reaches_the_trial_valkey() -> None:
    (rule,) = named("NetworkPolicy", POLICIES)[VALKEY]["ingress"]
    assert sources(rule) == {"operator", "check", "worker", "producer"}
    own = [peer for peer in rule["from"] if "namespaceSelector" not in peer]
    assert len(own) == 3
    (rule,) = named("NetworkPolicy", POLICIES, "--set=scope=Cluster")[VALKEY]["ingress"]
    elsewhere = [peer for peer in rule["from"] if "namespaceSelector" in peer]
    assert set().union(*(selected(peer["podSelector"]) for peer in elsewhere)) == {
        "worker",
        "producer",
    }


@pytest.mark.parametrize("policy", [OPERATOR, WORKERS])
def test_who_scrapes(policy: str) -> None:
    def scrapers(*options: str) -> list[Object]:
        return list(named("NetworkPolicy", POLICIES, *options)[policy]["ingress"][0]["from"])

    assert scrapers() == [{"namespaceSelector": {}}]
    label = "networkPolicies.metricsFrom[0].namespaceSelector.matchLabels.team=ops"
    assert scrapers(f"--set={label}") == [{"namespaceSelector": {"matchLabels": {"team": "ops"}}}]


def test_what_the_operator_reaches() -> None:
    dns, rest = named("NetworkPolicy", POLICIES)[OPERATOR]["egress"]
    assert {(each["port"], each["protocol"]) for each in dns["ports"]} == {
        (port, protocol) for port in (53, 5353) for protocol in ("UDP", "TCP")
    }
    assert [each["port"] for each in rest["ports"]] == [443, 6443, 6379, 26379]
    assert "to" not in rest


def test_what_helm_test_reaches() -> None:
    """DNS, the operator's port and Redis, also where everything else is denied."""
    policy = named("NetworkPolicy", POLICIES)[CHECK]
    assert "ingress" not in policy
    dns, operator, redis = policy["egress"]
    assert {each["port"] for each in dns["ports"]} == {53, 5353}
    (peer,) = operator["to"]
    assert selected(peer["podSelector"]) == {"operator"}
    assert operator["ports"] == [{"port": "metrics"}]
    assert redis == {"ports": [{"port": 6379}, {"port": 26379}]}


def test_what_workers_reach() -> None:
    """Everything, the provider is outside; or what the values say."""
    assert named("NetworkPolicy", POLICIES)[WORKERS]["egress"] == [{}]
    narrow = "--set=networkPolicies.workerEgress[0].ports[0].port=443"
    assert named("NetworkPolicy", POLICIES, narrow)[WORKERS]["egress"] == [
        {"ports": [{"port": 443}]}
    ]
