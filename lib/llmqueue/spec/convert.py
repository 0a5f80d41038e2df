"""LLMQueue → the configuration that the store keeps. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from pydantic.alias_generators import to_camel

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
from llmqueue.spec.calls import CircuitBreaker, Limits, PerBand, PerTenant, Retry
from llmqueue.spec.resource import LLMQueue
from llmqueue.spec.running import RetentionSpec
from llmqueue.states import LimitUnit

_MINUTE, _DAY = 60, 86_400
_LIMITS: tuple[tuple[LimitUnit, int, Callable[[Limits], int | None]], ...] = (
    (LimitUnit.REQUESTS, _MINUTE, lambda limits: limits.requests_per_minute),
    (LimitUnit.TOKENS, _MINUTE, lambda limits: limits.tokens_per_minute),
    (LimitUnit.INPUT_TOKENS, _MINUTE, lambda limits: limits.input_tokens_per_minute),
    (LimitUnit.OUTPUT_TOKENS, _MINUTE, lambda limits: limits.output_tokens_per_minute),
    (LimitUnit.REQUESTS, _DAY, lambda limits: limits.requests_per_day),
    (LimitUnit.TOKENS, _DAY, lambda limits: limits.tokens_per_day),
)


def queue_id(queue: LLMQueue) -> str:
    """ "<namespace>/<name>" """
    return f"{queue.metadata.namespace}/{queue.metadata.name}"


def budget_id(queue: LLMQueue) -> str:
    """The queue's own id, or "<namespace>/~<shared budget>": no queue's name begins with `~`."""
    shared = queue.spec.limits.shared_budget
    return f"{queue.metadata.namespace}/~{shared.name}" if shared else queue_id(queue)


def _lowest(values: Iterable[int | None]) -> int | None:
    return min((value for value in values if value is not None), default=None)


_ZONE = "day_time_zone"
_COMMON = (
    "requests_per_minute",
    "tokens_per_minute",
    "input_tokens_per_minute",
    "output_tokens_per_minute",
    "requests_per_day",
    "tokens_per_day",
    _ZONE,
    "max_in_flight",
)


def differing_limits(members: Sequence[LLMQueue]) -> tuple[str, ...]:
    """Fields of spec.limits that the members of one budget declare differently: the lowest counts,
    and they should be told. Whose limits have no day, its time zone is no matter."""
    declared = [queue.spec.limits for queue in members]
    with_days = [each for each in declared if each.limits_days]
    return tuple(
        to_camel(name)
        for name in _COMMON
        if len({getattr(e, name) for e in (with_days if name == _ZONE else declared)}) > 1
    )


def budget_config(members: Sequence[LLMQueue]) -> BudgetConfig:
    """The one configuration of a budget from all LLMQueues on it: of limits the lowest counts, of
    breakers the most cautious.

    Raises InvalidResource where the members are not of one budget or not of one provider type.
    """
    budgets = {budget_id(queue) for queue in members}
    if len(budgets) != 1:
        raise InvalidResource(f"members of one budget are needed, got {sorted(budgets)}")
    (budget,) = budgets
    types = {queue.spec.provider.type for queue in members}
    if len(types) != 1:
        raise InvalidResource(
            f"{', '.join(sorted(map(queue_id, members)))}: all LLMQueues on the shared budget"
            f" {budget} must have the same spec.provider.type, got {', '.join(sorted(types))}"
        )
    profile = PROFILES[types.pop()]
    limits = [queue.spec.limits for queue in members]
    zone = _day_time_zone(limits)
    return BudgetConfig(
        budget=budget,
        limits=tuple(
            Limit(unit, lowest, seconds, zone if seconds == _DAY else None)
            for unit, seconds, declared in _LIMITS
            if (lowest := _lowest(map(declared, limits))) is not None
        ),
        max_in_flight=_lowest(each.max_in_flight for each in limits),
        token_rule=profile.token_rule,
        token_accounting=profile.token_accounting,
        learned_output=profile.learned_output,
        learn_up=all(each.learn_from_headers == "Both" for each in limits),
        header_window_seconds=profile.header_window_seconds,
        breaker=_breaker([queue.spec.circuit_breaker for queue in members]),
    )


def _day_time_zone(declared: Sequence[Limits]) -> str | None:
    """Whose midnight begins the day. Where members that limit a day differ, a day is any 24 hours:
    what fits those fits the days of all zones."""
    zones = {each.day_time_zone for each in declared if each.limits_days}
    return zones.pop() if len(zones) == 1 else None


def _breaker(declared: Sequence[CircuitBreaker]) -> BreakerPolicy:
    return BreakerPolicy(
        failures=min(each.failures for each in declared),
        window_seconds=max(each.window_seconds for each in declared),
        open_seconds=max(each.open_seconds for each in declared),
        probe_seconds=max(each.probe_seconds for each in declared),
    )


def queue_config(queue: LLMQueue) -> QueueConfig:
    """What the store keeps of one LLMQueue."""
    spec = queue.spec
    shared, deadline = spec.limits.shared_budget, spec.timeouts.job_deadline_seconds
    return QueueConfig(
        queue=queue_id(queue),
        budget=budget_id(queue),
        provider=spec.provider.type,
        models=spec.provider.models,
        default_max_output_tokens=spec.limits.default_max_output_tokens,
        attempt_seconds=float(spec.timeouts.attempt_seconds),
        weight=shared.weight if shared else 1,
        suspended=spec.queue.suspend,
        max_jobs=spec.queue.max_jobs,
        max_bytes=spec.queue.max_bytes,
        retry=_retry(spec.retry),
        retention=_retention(spec.queue.retention),
        idempotency_seconds=spec.queue.idempotency_seconds,
        job_deadline_seconds=None if deadline is None else float(deadline),
        per_tenant=_tenant_limits(spec.limits.per_tenant),
        band_max_in_flight=_band_limits(spec.limits.max_in_flight_per_band),
        handlers=spec.worker.handlers is not None,
        durability=spec.redis.durability,
    )


def _tenant_limits(declared: PerTenant | None) -> TenantLimits | None:
    if declared is None:
        return None
    return TenantLimits(
        requests_per_second=declared.requests_per_second,
        burst=declared.burst_requests,
        max_in_flight=declared.max_in_flight,
    )


def _band_limits(declared: PerBand | None) -> tuple[int | None, ...]:
    if declared is None:
        return ()
    return (declared.urgent, declared.high, declared.normal, declared.low)


def _retry(retry: Retry) -> RetryPolicy:
    unknown = retry.unknown_outcome
    return RetryPolicy(
        # Rate limits use up no attempt, so there is nothing to count.
        rate_limit=Schedule(retry.rate_limit.delays_seconds),
        overload=Schedule(retry.overload.delays_seconds, retry.overload.max_attempts),
        transient=Schedule(retry.transient.delays_seconds, retry.transient.max_attempts),
        malformed=Schedule(retry.malformed.delays_seconds, retry.malformed.max_attempts),
        jitter_percent=retry.jitter_percent,
        unknown_outcome=UnknownOutcomePolicy(
            policy=unknown.policy,
            auto_retry_below_nano_usd=unknown.auto_retry_below_nano_usd,
            max_auto_retries=unknown.max_auto_retries,
        ),
    )


def _retention(retention: RetentionSpec) -> Retention:
    return Retention(
        succeeded_seconds=retention.succeeded_seconds,
        failed_seconds=retention.failed_seconds,
        max_succeeded=retention.max_succeeded,
        max_failed=retention.max_failed,
    )
