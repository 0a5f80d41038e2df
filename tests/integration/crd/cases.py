"""LLMQueue specs, good and bad: one table for the Python models and for a real API server.

`field` is the path as both name it. `message` is word for word what both say of a rule; where the
schema alone refuses (a bound, a list of values), the two use their own words, and it is empty.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

Spec = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Case:
    """A spec, and the field that is refused (empty: the spec is accepted)."""

    name: str
    spec: Spec
    field: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Change:
    """An update of an existing resource. Only the API server knows the resource before it."""

    name: str
    old: Spec
    new: Spec
    field: str = ""
    message: str = ""


def document(spec: Spec, *, name: str = "case") -> dict[str, Any]:
    """The whole resource."""
    return {
        "apiVersion": "llmqueue.dev/v1alpha1",
        "kind": "LLMQueue",
        "metadata": {"name": name},
        "spec": spec,
    }


def spec(**sections: Any) -> Spec:
    """The smallest spec, with these sections instead of its own."""
    smallest: Spec = {"provider": {"type": "openai"}, "limits": {"requestsPerMinute": 60}}
    return copy.deepcopy({**smallest, **sections})


def container(name: str, **fields: Any) -> Spec:
    return spec(worker={"podTemplate": {"spec": {"containers": [{"name": name, **fields}]}}})


def limits(**fields: Any) -> Spec:
    return spec(limits=fields)


NO_LIMIT = (
    "needs at least one limit: requestsPerMinute, tokensPerMinute, inputTokensPerMinute,"
    " outputTokensPerMinute, requestsPerDay, tokensPerDay or maxInFlight"
)
DRAIN_ATTEMPT = "must be ≥ timeouts.attemptSeconds, or a drain would cut running attempts off"
DRAIN_CALL = (
    "must be ≥ timeouts.connectSeconds + timeouts.requestSeconds, or a drain would cut running"
    " calls off"
)
NO_USERINFO = "must not hold a user name or password: use credentialsSecretRef"
WORKER_CONTAINER = "must leave out command, args, probes and lifecycle of the container worker"
SHARED_BUDGET = "cannot be joined, left or changed: create an LLMQueue with another name"
AT_MOST_MAX = "must be ≤ maxReplicas"

DRAIN = "spec.gracePeriods.drainSeconds"
POD = "spec.worker.podTemplate.spec"
SECRET = "Bearer-of-the-secret"

LIMIT_CASES = (
    Case("no limit", spec(limits={}), "spec.limits", NO_LIMIT),
    Case("no limits section", {"provider": {"type": "openai"}}, "spec.limits", NO_LIMIT),
    Case(
        "a limit of tenants only",
        limits(perTenant={"requestsPerSecond": 1}),
        "spec.limits",
        NO_LIMIT,
    ),
    *(
        Case(f"only {name}", limits(**{name: 1}))
        for name in (
            "requestsPerMinute",
            "tokensPerMinute",
            "inputTokensPerMinute",
            "outputTokensPerMinute",
            "requestsPerDay",
            "tokensPerDay",
            "maxInFlight",
        )
    ),
    Case("zero requests", limits(requestsPerMinute=0), "spec.limits.requestsPerMinute"),
    Case("negative tokens", limits(tokensPerMinute=-5), "spec.limits.tokensPerMinute"),
    Case("a number in quotes", limits(requestsPerMinute="60"), "spec.limits.requestsPerMinute"),
    Case("a fraction", limits(requestsPerMinute=1.5), "spec.limits.requestsPerMinute"),
    Case(
        "over 100 %",
        limits(requestsPerMinute=1, targetUtilizationPercent=101),
        "spec.limits.targetUtilizationPercent",
    ),
    Case("a day of a zone", limits(requestsPerDay=1, dayTimeZone="America/Los_Angeles")),
    Case(
        "no name of a zone",
        limits(requestsPerDay=1, dayTimeZone="America/Los Angeles"),
        "spec.limits.dayTimeZone",
    ),
    Case("unknown limit", limits(requestPerMinute=60), "spec.limits.requestPerMinute"),
)

DRAIN_CASES = (
    Case("drain as long as an attempt", spec(gracePeriods={"drainSeconds": 240})),
    Case(
        "drain shorter than an attempt",
        spec(gracePeriods={"drainSeconds": 239}),
        DRAIN,
        DRAIN_ATTEMPT,
    ),
    Case(
        "drain as long as a call",
        spec(
            gracePeriods={"drainSeconds": 130},
            timeouts={"attemptSeconds": 1, "connectSeconds": 10, "requestSeconds": 120},
        ),
    ),
    Case(
        "drain shorter than a call",
        spec(gracePeriods={"drainSeconds": 129}, timeouts={"attemptSeconds": 1}),
        DRAIN,
        DRAIN_CALL,
    ),
    Case(
        "call of 300 s, grace of 30 s",
        spec(gracePeriods={"drainSeconds": 30}, timeouts={"requestSeconds": 300}),
        DRAIN,
        DRAIN_CALL,
    ),
)

SCALING_CASES = (
    Case("min is max", spec(scaling={"minReplicas": 3, "maxReplicas": 3})),
    Case(
        "min above max",
        spec(scaling={"minReplicas": 4, "maxReplicas": 3}),
        "spec.scaling.minReplicas",
        AT_MOST_MAX,
    ),
    Case(
        "min above the default of max",
        spec(scaling={"minReplicas": 21}),
        "spec.scaling.minReplicas",
        AT_MOST_MAX,
    ),
    Case("negative min", spec(scaling={"minReplicas": -1}), "spec.scaling.minReplicas"),
    Case("no max", spec(scaling={"maxReplicas": 0}), "spec.scaling.maxReplicas"),
    Case("override below min", spec(scaling={"minReplicas": 2, "replicasOverride": 0})),
    Case(
        "override above max",
        spec(scaling={"replicasOverride": 21}),
        "spec.scaling.replicasOverride",
        AT_MOST_MAX,
    ),
    Case("at least one", spec(scaling={"onOutage": {"policy": "AtLeast", "replicas": 1}})),
    Case(
        "at least how many?",
        spec(scaling={"onOutage": {"policy": "AtLeast"}}),
        "spec.scaling.onOutage.replicas",
        "is required for policy AtLeast",
    ),
    Case(
        "at least more than max",
        spec(scaling={"maxReplicas": 2, "onOutage": {"policy": "AtLeast", "replicas": 3}}),
        "spec.scaling.onOutage.replicas",
        AT_MOST_MAX,
    ),
)

PROVIDER_CASES = (
    Case("anthropic", spec(provider={"type": "anthropic"})),
    Case("no provider", {"limits": {"requestsPerMinute": 1}}, "spec.provider"),
    Case("a later provider", spec(provider={"type": "gemini"}), "spec.provider.type"),
    Case(
        "compatible with an address",
        spec(provider={"type": "openai-compatible", "baseURL": "http://10.0.0.1:8000/v1"}),
    ),
    Case(
        "compatible without an address",
        spec(provider={"type": "openai-compatible"}),
        "spec.provider.baseURL",
        "is required for type openai-compatible",
    ),
    Case(
        "password in the address",
        spec(provider={"type": "openai", "baseURL": f"https://me:{SECRET}@example.com/v1"}),
        "spec.provider.baseURL",
        NO_USERINFO,
    ),
    Case(
        "user in the address",
        spec(provider={"type": "openai", "baseURL": f"https://{SECRET}@example.com"}),
        "spec.provider.baseURL",
        NO_USERINFO,
    ),
    Case(
        "at sign in the path",
        spec(provider={"type": "openai", "baseURL": "https://example.com/v1/@team"}),
    ),
    Case(
        "key in the query",
        spec(provider={"type": "openai", "baseURL": "https://example.com/v1?key=x"}),
        "spec.provider.baseURL",
    ),
    Case(
        "address without a scheme",
        spec(provider={"type": "openai", "baseURL": "example.com/v1"}),
        "spec.provider.baseURL",
    ),
    Case(
        "model twice",
        spec(provider={"type": "openai", "models": ["a", "a"]}),
        "spec.provider.models",
    ),
    Case(
        "101 models",
        spec(provider={"type": "openai", "models": [f"m{number}" for number in range(101)]}),
        "spec.provider.models",
    ),
    Case(
        "secret's name",
        spec(provider={"type": "openai", "credentialsSecretRef": {"name": "My Secret"}}),
        "spec.provider.credentialsSecretRef.name",
    ),
)

RETRY_CASES = (
    Case("no delay", spec(retry={"transient": {"delaysSeconds": [0], "maxAttempts": 1}})),
    Case(
        "no delays",
        spec(retry={"overload": {"delaysSeconds": []}}),
        "spec.retry.overload.delaysSeconds",
    ),
    Case(
        "21 delays",
        spec(retry={"rateLimit": {"delaysSeconds": [1] * 21}}),
        "spec.retry.rateLimit.delaysSeconds",
    ),
    Case("money", spec(retry={"unknownOutcome": {"autoRetryBelowUSD": "0.000000001"}})),
    Case(
        "money as a number",
        spec(retry={"unknownOutcome": {"autoRetryBelowUSD": 0.05}}),
        "spec.retry.unknownOutcome.autoRetryBelowUSD",
    ),
    Case(
        "money finer than nano-dollars",
        spec(retry={"unknownOutcome": {"autoRetryBelowUSD": "0.0000000001"}}),
        "spec.retry.unknownOutcome.autoRetryBelowUSD",
    ),
    Case(
        "negative money",
        spec(retry={"unknownOutcome": {"autoRetryBelowUSD": "-1"}}),
        "spec.retry.unknownOutcome.autoRetryBelowUSD",
    ),
    Case("jitter", spec(retry={"jitterPercent": 101}), "spec.retry.jitterPercent"),
)

CAP: Spec = {"scope": "Queue", "period": "Day", "usd": "5"}
PRICE: Spec = {
    "model": "m",
    "inputUSDPerMillionTokens": "1.25",
    "outputUSDPerMillionTokens": "10",
}
SPEND_CASES = (
    Case("caps", spec(spend={"caps": [CAP, {**CAP, "period": "Month"}], "prices": [PRICE]})),
    Case("cap twice", spec(spend={"caps": [CAP, CAP]}), "spec.spend.caps"),
    Case("price twice", spec(spend={"prices": [PRICE, PRICE]}), "spec.spend.prices"),
)

WORKER_CASES = (
    Case(
        "environment",
        spec(
            worker={
                "env": [
                    {"name": "A", "value": ""},
                    {"name": "B", "valueFrom": {"secretKeyRef": {"name": "x", "key": "y"}}},
                ]
            }
        ),
    ),
    Case(
        "our own variable",
        spec(worker={"env": [{"name": "LLMQUEUE_REDIS_URL", "value": "redis://else"}]}),
        "spec.worker.env[0].name",
        "must not begin with LLMQUEUE_: those follow from this resource",
    ),
    Case(
        "value and valueFrom",
        spec(worker={"env": [{"name": "A", "value": "x", "valueFrom": {}}]}),
        "spec.worker.env[0].valueFrom",
        "must be left out where value is set",
    ),
    Case(
        "variable twice",
        spec(worker={"env": [{"name": "A"}, {"name": "A"}]}),
        "spec.worker.env",
    ),
    Case(
        "resources",
        spec(worker={"resources": {"requests": {"cpu": 1, "memory": "64Mi"}, "limits": {}}}),
    ),
    Case("handlers", spec(worker={"handlers": "shop.jobs"})),
    Case("handlers with a path", spec(worker={"handlers": "shop/jobs.py"}), "spec.worker.handlers"),
)

OF_THE_WORKER: Spec = {
    "command": ["sh"],
    "args": ["-c"],
    "livenessProbe": {"httpGet": {"port": 1}},
    "readinessProbe": {},
    "startupProbe": {},
    "lifecycle": {"preStop": {"sleep": {"seconds": 5}}},
}
POD_CASES = (
    Case(
        "pod template",
        spec(
            worker={
                "podTemplate": {
                    "metadata": {"labels": {"team": "search"}},
                    "spec": {
                        "nodeSelector": {"disk": "ssd"},
                        "tolerations": [{"operator": "Exists"}],
                        "containers": [
                            {"name": "worker", "volumeMounts": [{"name": "x", "mountPath": "/x"}]},
                            {"name": "proxy", "command": ["proxy"], "livenessProbe": {}},
                        ],
                    },
                }
            }
        ),
    ),
    Case("pod's labels", spec(worker={"podTemplate": {"metadata": {"labels": {"a": "b"}}}})),
    Case(
        "pod's grace period",
        spec(worker={"podTemplate": {"spec": {"terminationGracePeriodSeconds": 5}}}),
        f"{POD}.terminationGracePeriodSeconds",
        "must be left out: set spec.gracePeriods",
    ),
    Case(
        "pod's restart policy",
        spec(worker={"podTemplate": {"spec": {"restartPolicy": "Never"}}}),
        f"{POD}.restartPolicy",
        "must be left out: workers are always restarted",
    ),
    *(
        Case(
            f"worker's {name}",
            container("worker", **{name: value}),
            f"{POD}.containers",
            WORKER_CONTAINER,
        )
        for name, value in OF_THE_WORKER.items()
    ),
    Case("worker's image pull policy", container("worker", imagePullPolicy="Always")),
)

CASES = (
    *LIMIT_CASES,
    *DRAIN_CASES,
    *SCALING_CASES,
    *PROVIDER_CASES,
    *RETRY_CASES,
    *SPEND_CASES,
    *WORKER_CASES,
    *POD_CASES,
    Case("smallest", spec()),
    Case("unknown section", spec(limit={}), "spec.limit"),
    Case("redis", spec(redis={"connection": "big", "workerSecretRef": {"name": "r"}})),
)


def _shared(**fields: Any) -> Spec:
    return limits(requestsPerMinute=60, sharedBudget=fields)


CHANGES = (
    Change("another limit", limits(requestsPerMinute=60), limits(tokensPerMinute=60)),
    Change("another weight", _shared(name="a"), _shared(name="a", weight=2)),
    *(
        Change(name, old, new, "spec.limits.sharedBudget", SHARED_BUDGET)
        for name, old, new in (
            ("another budget", _shared(name="a"), _shared(name="b")),
            ("join a budget", spec(), _shared(name="a")),
            ("leave a budget", _shared(name="a"), spec()),
        )
    ),
)
