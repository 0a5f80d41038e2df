"""What goes wrong at the store, the provider or the workers, and what it does to the target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from llmqueue.store.snapshots import BudgetSnapshot, PauseView
from llmqueue_operator.planning.reasons import ConditionType, Reason
from llmqueue_operator.planning.types import (
    GroupSnapshot,
    Memory,
    QueueInput,
    QueueMemory,
    ScalingSpec,
)
from llmqueue_operator.planning.workforce import STALE_SECONDS, Workforce

UNKNOWN_SHARE = 0.2
UNKNOWN_MIN_ANSWERS = 5

_PAUSE_REASONS = {
    "QUOTA": Reason.QUOTA_EXHAUSTED,
    "AUTH": Reason.CREDENTIAL_REJECTED,
    "FORBIDDEN": Reason.CREDENTIAL_FORBIDDEN,
}


@dataclass(frozen=True, slots=True)
class Hold:
    """Nothing moves: the store says nothing that could be planned on."""

    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class Restraint:
    """A trouble that keeps the target down.

    `at_most` None: no growth (one worker is always allowed, or trouble could never be seen to
    end). A number: to the minimum, or so many if that is more. `next_change_seconds`: when it is
    planned to end, where that is known.
    """

    condition: ConditionType
    reason: Reason
    message: str
    at_most: int | None = None
    next_change_seconds: float | None = None


def store_hold(snapshot: GroupSnapshot, memory: Memory, now: float) -> tuple[Hold | None, Memory]:
    """Whether the store's state holds all queues, and the memory of it."""
    store = snapshot.store
    if store is None:
        age = f" for {snapshot.store_age_seconds:.0f} s" if snapshot.store_age_seconds >= 1 else ""
        message = f"the store could not be read{age}: {snapshot.store_error or 'no answer'}"
        return Hold(Reason.STORE_UNAVAILABLE, message), replace(memory, store_lost=True)
    blind_until = now + STALE_SECONDS if memory.store_lost else memory.blind_until
    window = max((q.scaling.stabilization_seconds for q in snapshot.queues), default=0.0)
    reset = was_reset(snapshot, memory)
    reset_until = now + window if reset else memory.reset_until
    if reset_until is not None and reset_until <= now:
        reset_until = None
    memory = replace(
        memory,
        store_lost=False,
        outage_raised=False,
        blind_until=blind_until if blind_until is not None and blind_until > now else None,
        epoch=store.epoch,
        reset_until=reset_until,
    )
    if reset_until is not None:
        message = f"the store was reset; replicas are held for {reset_until - now:.0f} s"
        return Hold(Reason.STORE_RESET, message), memory
    if store.epoch is None:
        return Hold(Reason.STORE_UNCONFIGURED, "the store has no configuration yet"), memory
    return None, memory


def was_reset(snapshot: GroupSnapshot, memory: Memory) -> bool:
    """Whether the store lost the configuration that it had in the tick before."""
    store = snapshot.store
    return store is not None and memory.epoch is not None and store.epoch != memory.epoch


def needs_configuration(snapshot: GroupSnapshot, memory: Memory) -> bool:
    """Whether registry and cfg must be written; `memory` is the one before this tick."""
    store = snapshot.store
    if store is None:
        return False
    known = {q.queue for q in store.queues}
    return (
        was_reset(snapshot, memory)
        or store.epoch is None
        or any(q.queue not in known for q in snapshot.queues)
    )


def long_block(store: BudgetSnapshot, scaling: ScalingSpec, memory: QueueMemory) -> bool:
    """Whether the running block is (or began as) one that is worth giving the workers back."""
    if store.blocked_seconds <= 0:
        return False
    longest_waited_out = scaling.stabilization_seconds + scaling.pod_start_seconds
    return memory.blocked_long or store.blocked_seconds > longest_waited_out


def pauses_of(credential: str, store: BudgetSnapshot) -> list[PauseView]:
    """The pauses that concern a queue whose workers use this key; "" = not known, all of them."""
    return [p for p in store.pauses if not credential or p.credential == credential]


def restraints(
    queue: QueueInput, store: BudgetSnapshot, crew: Workforce, *, blocked_long: bool
) -> list[Restraint]:
    """All troubles of one queue, the gravest first."""
    found = [
        _paused(queue.scaling, pauses_of(queue.credential, store)),
        _blocked(queue.scaling, store, blocked_long),
        _breaker(store),
        _unknown(store),
        _failing(crew),
        _not_seen(crew),
    ]
    return [restraint for restraint in found if restraint is not None]


def _paused(scaling: ScalingSpec, pauses: Sequence[PauseView]) -> Restraint | None:
    """To the minimum; one worker in time for the probe, also from 0."""
    if not pauses:
        return None
    pause = min(pauses, key=lambda p: (not p.probing, p.next_probe_seconds))
    wait = pause.next_probe_seconds - scaling.pod_start_seconds
    due = pause.probing or wait <= 0
    return Restraint(
        ConditionType.CREDENTIAL_USABLE,
        _PAUSE_REASONS[pause.kind],
        pause.message or f"the provider refuses this credential ({pause.kind})",
        at_most=1 if due else 0,
        next_change_seconds=None if due else wait,
    )


def _blocked(scaling: ScalingSpec, store: BudgetSnapshot, blocked_long: bool) -> Restraint | None:
    provider = ConditionType.PROVIDER_AVAILABLE
    if blocked_long:
        wait = store.blocked_seconds - scaling.pod_start_seconds
        if wait <= 0:
            return None  # pods asked for now are there when the block ends
        message = "the provider asked for a long pause (Retry-After); no call before it ends"
        return Restraint(provider, Reason.RATE_LIMITED, message, 0, wait)
    if store.blocked_seconds > 0:
        message = "the provider answered 429; no call before the time it asked for"
        return Restraint(
            provider, Reason.RATE_LIMITED, message, next_change_seconds=store.blocked_seconds
        )
    # A ramp without 429s (cold or idle budget) is over before a new pod would be there.
    storm = 2 * store.answers_rate > store.answers
    if store.answers_rate > 0 and (storm or store.rate_factor < 1):
        message = "the provider answers 429; the rate is lowered and workers are not added"
        return Restraint(provider, Reason.RATE_LIMITED, message)
    return None


def _breaker(store: BudgetSnapshot) -> Restraint | None:
    if store.breaker == "closed":
        return None
    return Restraint(
        ConditionType.PROVIDER_AVAILABLE,
        Reason.BREAKER_OPEN,
        f"too many calls failed; the breaker is {store.breaker}",
        next_change_seconds=store.breaker_seconds if store.breaker_seconds > 0 else None,
    )


def _unknown(store: BudgetSnapshot) -> Restraint | None:
    too_few = store.answers < UNKNOWN_MIN_ANSWERS
    if too_few or store.answers_unknown <= UNKNOWN_SHARE * store.answers:
        return None
    return Restraint(
        ConditionType.PROVIDER_AVAILABLE,
        Reason.UNKNOWN_OUTCOMES,
        "more than a fifth of the calls ended with an unknown outcome",
    )


def _failing(crew: Workforce) -> Restraint | None:
    if not crew.failing:
        return None
    names = _names([m.pod.name for m in crew.failing])
    return Restraint(
        ConditionType.WORKERS_AVAILABLE, Reason.WORKERS_FAILING, f"workers do not start: {names}"
    )


def _not_seen(crew: Workforce) -> Restraint | None:
    if not crew.not_seen:
        return None
    names = _names([m.pod.name for m in crew.not_seen])
    return Restraint(
        ConditionType.WORKERS_AVAILABLE,
        Reason.WORKERS_NOT_SEEN,
        f"workers run but do not reach the store: {names}",
    )


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(sorted(names)[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"
