"""LLMQueue → what the store keeps, what the planner needs, what a worker is told."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import pytest

from llmqueue.config import (
    BreakerPolicy,
    BudgetConfig,
    Limit,
    QueueConfig,
    Retention,
    RetryPolicy,
    Schedule,
    TenantLimits,
    UnknownOutcomePolicy,
)
from llmqueue.errors import InvalidResource
from llmqueue.profiles import PROFILES
from llmqueue.settings import WorkerSettings
from llmqueue.spec import (
    LLMQueue,
    budget_config,
    budget_id,
    differing_limits,
    queue_config,
    queue_id,
    unserved_fields,
    worker_environment,
)
from llmqueue.states import LimitUnit, ProviderType
from llmqueue.store import codec
from llmqueue_operator.planning import ScalingSpec
from llmqueue_operator.planning.spec import scaling_spec

SERVER = {"type": "openai-compatible", "baseURL": "http://10.0.0.1/v1/"}


def queue(name: str = "a", namespace: str = "default", **spec: Any) -> LLMQueue:
    smallest = {"provider": {"type": "openai"}, "limits": {"requestsPerMinute": 60}}
    return LLMQueue.model_validate(
        {
            "apiVersion": "llmqueue.dev/v1alpha1",
            "kind": "LLMQueue",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {**smallest, **spec},
        }
    )


def member(name: str, *, kind: str = "openai", breaker: Any = None, **limits: Any) -> LLMQueue:
    shared = {"sharedBudget": {"name": "team"}, **limits}
    return queue(name, provider={"type": kind}, limits=shared, circuitBreaker=breaker or {})


# ------------------------------------------------------------ tenants and bands


@pytest.mark.parametrize(
    ("declared", "kept"),
    [
        pytest.param({}, TenantLimits(), id="nothing"),
        pytest.param(
            {"requestsPerSecond": 5, "burstRequests": 9, "maxInFlight": 2},
            TenantLimits(5, 9, 2),
            id="all",
        ),
    ],
)
def test_limits_of_tenants(declared: dict[str, int], kept: TenantLimits) -> None:
    limits = {"requestsPerMinute": 1, "perTenant": declared}
    assert queue_config(queue(limits=limits)).per_tenant == kept
    assert queue_config(queue()).per_tenant is None


def test_limits_of_bands() -> None:
    """The most urgent first; those that are left out have none."""
    limits = {"requestsPerMinute": 1, "maxInFlightPerBand": {"low": 3, "urgent": 9}}
    assert queue_config(queue(limits=limits)).band_max_in_flight == (9, None, None, 3)
    assert queue_config(queue()).band_max_in_flight == ()


@pytest.mark.parametrize(
    ("limits", "sent"),
    [
        pytest.param(None, None, id="none"),
        pytest.param(TenantLimits(), None, id="empty"),
        pytest.param(TenantLimits(4), {"every_ms": 250.0, "burst": 4}, id="a second's calls"),
        pytest.param(TenantLimits(4, 1), {"every_ms": 250.0, "burst": 1}, id="burst"),
        pytest.param(TenantLimits(None, None, 3), {"burst": 1, "in_flight": 3}, id="in flight"),
    ],
)
def test_what_scripts_are_told_of_tenants(limits: Any, sent: Any) -> None:
    config = dataclasses.replace(queue_config(queue()), per_tenant=limits)
    assert json.loads(codec.queue_json(config)).get("tenant") == sent


def test_members_that_declare_different_limits() -> None:
    first = member("a", requestsPerMinute=60, maxInFlight=5)
    second = member("b", requestsPerMinute=50, maxInFlight=5)
    assert differing_limits([first, second]) == ("requestsPerMinute",)
    assert differing_limits([first, first]) == ()
    day, none = {"requestsPerDay": 5}, {"requestsPerMinute": 60}
    here, there = {"dayTimeZone": "Asia/Kolkata"}, {"dayTimeZone": "UTC"}
    both = [member("a", **day, **here), member("b", **day, **there)]
    assert differing_limits(both) == ("dayTimeZone",)
    without_days = [member("a", **day, **here), member("b", **day, **here), member("c", **none)]
    assert "dayTimeZone" not in differing_limits(without_days), "its midnight is still the day's"


# ------------------------------------------------------------ ids


def test_ids() -> None:
    assert queue_id(queue("a", "team")) == budget_id(queue("a", "team")) == "team/a"
    shared = queue("a", "team", limits={"maxInFlight": 1, "sharedBudget": {"name": "a"}})
    assert (queue_id(shared), budget_id(shared)) == ("team/a", "team/~a")


# ------------------------------------------------------------ budget


def test_the_smallest_budget_is_the_defaults() -> None:
    assert budget_config([queue()]) == BudgetConfig(
        budget="default/a", limits=(Limit(LimitUnit.REQUESTS, 60),), header_window_seconds=60
    )


def test_each_limit_has_its_unit_and_window() -> None:
    declared = {
        "requestsPerMinute": 1,
        "tokensPerMinute": 2,
        "inputTokensPerMinute": 3,
        "outputTokensPerMinute": 4,
        "requestsPerDay": 5,
        "tokensPerDay": 6,
        "maxInFlight": 7,
    }
    budget = budget_config([queue(limits=declared)])
    assert budget.limits == (
        Limit(LimitUnit.REQUESTS, 1, 60),
        Limit(LimitUnit.TOKENS, 2, 60),
        Limit(LimitUnit.INPUT_TOKENS, 3, 60),
        Limit(LimitUnit.OUTPUT_TOKENS, 4, 60),
        Limit(LimitUnit.REQUESTS, 5, 86_400),
        Limit(LimitUnit.TOKENS, 6, 86_400),
    )
    assert budget.max_in_flight == 7


@pytest.mark.parametrize(
    ("provider", "accounting"),
    [
        pytest.param({"type": "openai"}, ("max", "keep", False), id="openai"),
        pytest.param({"type": "anthropic"}, ("sum", "correct", True), id="anthropic"),
        pytest.param(SERVER, ("sum", "keep", False), id="compatible"),
    ],
)
def test_how_the_provider_counts(provider: dict[str, str], accounting: tuple[Any, ...]) -> None:
    budget = budget_config([queue(provider=provider)])
    assert (budget.token_rule, budget.token_accounting, budget.learned_output) == accounting


def test_every_provider_type_has_a_profile() -> None:
    assert set(PROFILES) == set(ProviderType)


def test_of_several_members_the_lowest_limits_count() -> None:
    budget = budget_config(
        [
            member("a", requestsPerMinute=60, maxInFlight=9),
            member("b", requestsPerMinute=50, tokensPerMinute=1000),
            member("c", requestsPerMinute=70, maxInFlight=8),
        ]
    )
    assert budget.budget == "default/~team"
    assert budget.limits == (Limit(LimitUnit.REQUESTS, 50), Limit(LimitUnit.TOKENS, 1000))
    assert budget.max_in_flight == 8


ZONES = {
    # spec.limits of two members → the zone of their days
    "one for both": (
        {"requestsPerDay": 5, "dayTimeZone": "Asia/Kolkata"},
        {"requestsPerDay": 6, "dayTimeZone": "Asia/Kolkata"},
        "Asia/Kolkata",
    ),
    "different ones": (
        {"requestsPerDay": 5, "dayTimeZone": "Asia/Kolkata"},
        {"requestsPerDay": 6, "dayTimeZone": "UTC"},
        None,
    ),
    "one says any 24 hours": (
        {"requestsPerDay": 5, "dayTimeZone": "Asia/Kolkata"},
        {"tokensPerDay": 6},
        None,
    ),
    "one limits no day": (
        {"requestsPerDay": 5, "dayTimeZone": "Asia/Kolkata"},
        {"requestsPerMinute": 6, "dayTimeZone": "UTC"},
        "Asia/Kolkata",
    ),
}


@pytest.mark.parametrize(("first", "second", "zone"), ZONES.values(), ids=ZONES.keys())
def test_whose_midnight_begins_the_day(
    first: dict[str, Any], second: dict[str, Any], zone: str | None
) -> None:
    """Any 24 hours fit the days of all zones: that is the lowest where members differ."""
    budget = budget_config([member("a", **first), member("b", **second)])
    days = {limit.time_zone for limit in budget.limits if limit.seconds == 86_400}
    assert days == {zone}
    assert {limit.time_zone for limit in budget.limits if limit.seconds == 60} <= {None}


@pytest.mark.parametrize(
    ("said", "learn_up"),
    [
        pytest.param(["Both", "Both"], True, id="both"),
        pytest.param(["Both", "LowerOnly"], False, id="not all"),
    ],
)
def test_all_members_must_let_headers_raise_a_limit(said: list[str], learn_up: bool) -> None:
    members = [
        member(str(number), requestsPerMinute=1, learnFromHeaders=word)
        for number, word in zip("ab", said, strict=True)
    ]
    assert budget_config(members).learn_up == learn_up


def test_of_several_members_the_most_cautious_breaker_counts() -> None:
    first = {"failures": 5, "windowSeconds": 10, "openSeconds": 200, "probeSeconds": 100}
    second = {"failures": 7, "windowSeconds": 20, "openSeconds": 100, "probeSeconds": 400}
    members = [member(n, requestsPerMinute=1, breaker=b) for n, b in (("a", first), ("b", second))]
    assert budget_config(members).breaker == BreakerPolicy(5, 20, 200, 400)


def test_members_of_two_budgets_or_providers_are_refused() -> None:
    with pytest.raises(InvalidResource, match=r"one budget .*default/a.*default/b"):
        budget_config([queue("a"), queue("b")])
    with pytest.raises(InvalidResource, match=r"one budget"):
        budget_config([])
    mixed = [member("b", requestsPerMinute=1), member("a", kind="anthropic", requestsPerMinute=1)]
    with pytest.raises(InvalidResource) as caught:
        budget_config(mixed)
    assert str(caught.value) == (
        "default/a, default/b: all LLMQueues on the shared budget default/~team must have the same"
        " spec.provider.type, got anthropic, openai"
    )


# ------------------------------------------------------------ queue


def test_the_smallest_queue_is_the_defaults() -> None:
    assert queue_config(queue()) == QueueConfig("default/a", "default/a", ProviderType.OPENAI)


def test_every_field_of_a_queue_comes_from_the_spec() -> None:
    config = queue_config(
        queue(
            provider={"type": "anthropic", "models": ["m", "n"]},
            limits={
                "requestsPerMinute": 1,
                "defaultMaxOutputTokens": 77,
                "sharedBudget": {"name": "team", "weight": 3},
                "perTenant": {"requestsPerSecond": 4, "burstRequests": 5, "maxInFlight": 6},
                "maxInFlightPerBand": {"urgent": 1, "high": 2, "normal": 3, "low": 4},
            },
            timeouts={"attemptSeconds": 33, "jobDeadlineSeconds": 44},
            retry={
                "rateLimit": {"delaysSeconds": [1]},
                "overload": {"delaysSeconds": [2], "maxAttempts": 5},
                "transient": {"delaysSeconds": [3, 4]},
                "malformed": {"delaysSeconds": [0], "maxAttempts": 1},
                "jitterPercent": 7,
                "unknownOutcome": {
                    "policy": "Retry",
                    "autoRetryBelowUSD": "0.1",
                    "maxAutoRetries": 2,
                },
            },
            queue={
                "maxJobs": 10,
                "maxBytes": 20,
                "retention": {
                    "succeededSeconds": 30,
                    "failedSeconds": 40,
                    "maxSucceeded": 50,
                    "maxFailed": 60,
                },
                "idempotencySeconds": 70,
                "suspend": True,
            },
            worker={"handlers": "team.jobs"},
            redis={"durability": "Strict"},
        )
    )
    expected = QueueConfig(
        queue="default/a",
        budget="default/~team",
        provider=ProviderType.ANTHROPIC,
        models=("m", "n"),
        default_max_output_tokens=77,
        attempt_seconds=33.0,
        weight=3,
        suspended=True,
        max_jobs=10,
        max_bytes=20,
        retry=RetryPolicy(
            rate_limit=Schedule((1,)),
            overload=Schedule((2,), 5),
            transient=Schedule((3, 4)),
            malformed=Schedule((0,), 1),
            jitter_percent=7,
            unknown_outcome=UnknownOutcomePolicy("Retry", 100_000_000, 2),
        ),
        retention=Retention(30, 40, 50, 60),
        idempotency_seconds=70,
        job_deadline_seconds=44.0,
        per_tenant=TenantLimits(4, 5, 6),
        band_max_in_flight=(1, 2, 3, 4),
        handlers=True,
        durability="Strict",
    )
    assert config == expected
    default = QueueConfig("", "", ProviderType.OPENAI)
    same = [
        f.name
        for f in dataclasses.fields(config)
        if getattr(config, f.name) == getattr(default, f.name)
    ]
    assert same == []


# ------------------------------------------------------------ scaling


def test_the_smallest_scaling_is_the_defaults() -> None:
    assert scaling_spec(queue()) == ScalingSpec()


def test_every_field_of_scaling_comes_from_the_spec() -> None:
    scaling = scaling_spec(
        queue(
            limits={"requestsPerMinute": 1, "targetUtilizationPercent": 90},
            circuitBreaker={"probeSeconds": 9},
            scaling={
                "minReplicas": 1,
                "maxReplicas": 2,
                "slotsPerWorker": 3,
                "targetQueueWaitSeconds": 4,
                "expectedCallSeconds": 5,
                "idleSeconds": 6,
                "stabilizationSeconds": 7,
                "paused": True,
                "replicasOverride": 0,
                "onOutage": {"policy": "AtLeast", "replicas": 2},
            },
        )
    )
    assert scaling == ScalingSpec(1, 2, 3, 4.0, 5.0, 6.0, 7.0, True, 0, "AtLeast", 2, 90, 9.0)


# ------------------------------------------------------------ workers


def environment(of: LLMQueue, **fields: Any) -> dict[str, str]:
    given: dict[str, Any] = {
        "redis_url": "redis://127.0.0.1:6379/0",
        "api_key_file": Path("/run/key"),
        "worker_uid": "u",
        "health_port": 8080,
    }
    return worker_environment(of, **{**given, **fields})


def settings(variables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> WorkerSettings:
    for name in [name for name in os.environ if name.startswith("LLMQUEUE_")]:
        monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return WorkerSettings()  # type: ignore[call-arg]


def test_the_worker_reads_what_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    full = queue(
        provider={**SERVER, "idempotency": "Honoured"},
        limits={"requestsPerMinute": 1, "defaultMaxOutputTokens": 11},
        timeouts={
            "connectSeconds": 1,
            "requestSeconds": 2,
            "streamIdleSeconds": 3,
            "attemptSeconds": 4,
        },
        gracePeriods={"drainSeconds": 301},
        scaling={"slotsPerWorker": 5},
        worker={"handlers": "a.b", "maxJobs": 6, "maxSeconds": 7, "maxMemoryMiB": 8},
    )
    variables = environment(full, log_level="debug", log_format="console")
    fields = WorkerSettings.model_fields.keys() - {"redis_url_file"}  # instead of redis_url
    assert set(variables) == {f"LLMQUEUE_{name.upper()}" for name in fields}
    expected = {
        "redis_url": "redis://127.0.0.1:6379/0",
        "redis_url_file": None,
        "queue": "default/a",
        "worker_uid": "u",
        "provider": ProviderType.OPENAI_COMPATIBLE,
        "base_url": "http://10.0.0.1/v1",
        "api_key_file": Path("/run/key"),
        "idempotency": "Honoured",
        "slots": 5,
        "connect_seconds": 1,
        "request_seconds": 2,
        "stream_idle_seconds": 3,
        "attempt_seconds": 4,
        "lease_seconds": 10,
        "drain_seconds": 301,
        "handlers": "a.b",
        "max_jobs": 6,
        "max_seconds": 7,
        "max_memory_mib": 8,
        "health_port": 8080,
        "log_level": "debug",
        "log_format": "console",
    }
    assert settings(variables, monkeypatch).model_dump() == expected


def test_what_is_not_there_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = environment(queue(), api_key_file=None, worker_uid=None, health_port=None)
    absent = {"LLMQUEUE_API_KEY_FILE", "LLMQUEUE_WORKER_UID", "LLMQUEUE_HEALTH_PORT"}
    assert absent.isdisjoint(variables)
    read = settings({**variables, "LLMQUEUE_WORKER_UID": "x"}, monkeypatch)
    assert (read.api_key_file, read.worker_uid, read.health_port) == (None, "x", None)


@pytest.mark.parametrize(
    ("provider", "url"),
    [
        ({"type": "openai"}, "https://api.openai.com/v1"),
        ({"type": "anthropic"}, "https://api.anthropic.com"),
        ({"type": "anthropic", "baseURL": "http://127.0.0.1:1/"}, "http://127.0.0.1:1"),
    ],
)
def test_where_calls_go(provider: dict[str, str], url: str) -> None:
    assert environment(queue(provider=provider))["LLMQUEUE_BASE_URL"] == url


def test_no_address_is_an_error_and_not_an_empty_one() -> None:
    """Resources that were changed in memory did not pass validation again."""
    valid = queue(provider=SERVER)
    provider = valid.spec.provider.model_copy(update={"base_url": None})
    spec = valid.spec.model_copy(update={"provider": provider})
    with pytest.raises(InvalidResource, match=r"default/a: spec\.provider\.baseURL: is required"):
        environment(valid.model_copy(update={"spec": spec}))


def test_a_changed_limit_leaves_the_workers_alone() -> None:
    """Limits, retries, breaker, scaling (but slots) and the queue's settings are live."""
    changed = queue(
        limits={"requestsPerMinute": 1, "maxInFlight": 3},
        retry={"jitterPercent": 1},
        circuitBreaker={"failures": 1},
        scaling={"maxReplicas": 1},
        queue={"suspend": True},
    )
    assert environment(changed) == environment(queue())


# ------------------------------------------------------------ later releases


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        (
            {"spend": {"caps": [{"scope": "Queue", "period": "Day", "usd": "1"}]}},
            "spec.spend.caps",
        ),
        ({"spend": {"features": ["f"]}}, "spec.spend.features"),
        (
            {
                "spend": {
                    "prices": [
                        {
                            "model": "m",
                            "inputUSDPerMillionTokens": "1",
                            "outputUSDPerMillionTokens": "1",
                        }
                    ]
                }
            },
            "spec.spend.prices",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_has_no_effect_yet_is_said(spec: dict[str, Any], path: str) -> None:
    assert unserved_fields(queue(**spec)) == (path,)


def test_nothing_to_say() -> None:
    assert unserved_fields(queue()) == ()
