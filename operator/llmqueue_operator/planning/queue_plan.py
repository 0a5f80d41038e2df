"""The plan of one queue: wish → trouble → target over time → who goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from llmqueue.store.snapshots import BudgetSnapshot
from llmqueue_operator.planning.conditions import conditions, held_conditions
from llmqueue_operator.planning.estimate import effective_rpm, eta_seconds
from llmqueue_operator.planning.formula import clamp
from llmqueue_operator.planning.history import History
from llmqueue_operator.planning.learned import difference
from llmqueue_operator.planning.reasons import Reason
from llmqueue_operator.planning.smoothing import Step, idle_since, in_force, step
from llmqueue_operator.planning.supply import Supply
from llmqueue_operator.planning.trouble import Hold, Restraint, long_block, pauses_of, restraints
from llmqueue_operator.planning.types import BoundBy, PodPhase, QueueInput, QueueMemory, QueuePlan
from llmqueue_operator.planning.victims import Dismissal, dismiss
from llmqueue_operator.planning.wishing import Wish, wish_for
from llmqueue_operator.planning.work import Work
from llmqueue_operator.planning.workforce import Workforce

_SENTENCES = {
    Reason.STEADY: "as many workers as are wanted",
    Reason.IDLE: "nothing to do",
    Reason.SUSPENDED: "the queue is suspended",
    Reason.DAY_USED_UP: "the limit of the day is used up; the jobs wait for the next one",
    Reason.SCALED_UP: "more workers are wanted",
    Reason.SCALED_DOWN: "fewer workers were wanted for a whole stabilization window",
    Reason.SCALED_TO_ZERO: "nothing could be done for idleSeconds",
    Reason.STABILIZATION_WINDOW: "fewer workers are wanted; the stabilization window runs",
    Reason.IDLE_TIMER: "nothing to do; the last worker stays for idleSeconds",
    Reason.REPLICAS_OVERRIDE: "spec.scaling.replicasOverride decides",
    Reason.SCALING_PAUSED: "spec.scaling.paused: replicas are frozen",
    Reason.ROLLOUT_IN_PROGRESS: "running workers do not go while a rollout is under way",
}


@dataclass(frozen=True, slots=True)
class Situation:
    """All that is known of one queue in one tick."""

    queue: QueueInput
    store: BudgetSnapshot
    crew: Workforce
    history: History
    work: Work
    supply: Supply


@dataclass(frozen=True, slots=True)
class Decision:
    """The next target with its reason, and the memory that goes with it."""

    step: Step
    bound_by: BoundBy
    message: str
    memory: QueueMemory


def plan_queue(
    situation: Situation, memory: QueueMemory, now: float
) -> tuple[QueuePlan, QueueMemory]:
    """Plan one queue of a store that answers; `memory` has this tick's counters."""
    queue, crew, store = situation.queue, situation.crew, situation.store
    wish = _wish(situation, memory.target)
    memory = replace(memory, blocked_long=long_block(store, queue.scaling, memory))
    troubles = restraints(queue, store, crew, blocked_long=memory.blocked_long)
    decision = _decide(situation, wish, troubles, memory, now)
    target = decision.step.target
    going = _staff(queue, crew, target)
    reason, message = decision.step.reason, decision.message
    if queue.rolling and going.draining:
        reason, message = Reason.ROLLOUT_IN_PROGRESS, _SENTENCES[Reason.ROLLOUT_IN_PROGRESS]
    message = "; ".join(filter(None, (message, difference(store))))
    plan = QueuePlan(
        queue=queue.queue,
        wish=wish.workers,
        target=target,
        replicas=going.replicas,
        mark=going.mark,
        unmark=going.unmark,
        remove=going.remove,
        bound_by=decision.bound_by,
        reason=reason,
        effective_rpm=effective_rpm(situation.supply, store, situation.history),
        eta_seconds=_eta(situation, target),
        slot_seconds=situation.history.slot_seconds,
        conditions=conditions(queue.scaling, troubles),
        message=message,
        next_change_seconds=decision.step.next_change_seconds,
        actual=crew.taking_jobs,
        draining=going.draining,
    )
    return plan, replace(decision.memory, target=target, target_reason=reason)


def hold_queue(queue: QueueInput, memory: QueueMemory, hold: Hold) -> tuple[QueuePlan, QueueMemory]:
    """The plan while the store says nothing: nobody goes, and only a person's number adds.

    `memory.target` already has what `onOutage` asks for.
    """
    scaling = queue.scaling
    target = queue.replicas if scaling.paused else memory.target
    replicas = queue.replicas if scaling.paused else max(queue.replicas, target)
    plan = QueuePlan(
        queue=queue.queue,
        wish=target,
        target=target,
        replicas=replicas,
        mark=(),
        unmark=(),
        remove=(),
        bound_by=BoundBy.HELD,
        reason=hold.reason,
        effective_rpm=0.0,
        eta_seconds=None,
        slot_seconds=memory.slot_seconds or scaling.expected_call_seconds,
        conditions=held_conditions(hold),
        message=hold.message,
        actual=sum(pod.phase is PodPhase.RUNNING for pod in queue.pods),
        draining=max(0, replicas - target),
    )
    return plan, replace(memory, target=target, target_reason=hold.reason)


def _decide(
    situation: Situation, wish: Wish, troubles: Sequence[Restraint], memory: QueueMemory, now: float
) -> Decision:
    scaling = situation.queue.scaling
    shrink = next((t for t in troubles if t.at_most is not None), None)
    wanted, keep = _restrained(situation.queue, wish, troubles, shrink, memory.target)
    memory = replace(
        memory,
        wishes=in_force(memory.wishes, keep, now, scaling.stabilization_seconds),
        idle_since=idle_since(memory, keep, now, probe=bool(shrink and shrink.at_most)),
    )
    if scaling.paused:
        return _settled(situation.queue.replicas, Reason.SCALING_PAUSED, BoundBy.HELD, memory)
    if scaling.replicas_override is not None:
        given = clamp(scaling.replicas_override, 0, scaling.max_replicas)
        decision = _settled(given, Reason.REPLICAS_OVERRIDE, BoundBy.OVERRIDE, memory)
    else:
        taken = step(memory, wanted, scaling, now)
        # A person who lowers max means now; the drain loses nothing.
        taken = replace(taken, target=min(taken.target, scaling.max_replicas))
        held = shrink or next(iter(troubles), None)
        if held is not None and wish.workers > wanted:
            waits = held.next_change_seconds or taken.next_change_seconds
            taken = Step(taken.target, held.reason, waits)
            decision = Decision(taken, BoundBy.HELD, held.message, memory)
        else:
            taken = _without_work(situation, taken)
            decision = Decision(taken, wish.bound_by, _SENTENCES[taken.reason], memory)
    if decision.step.target > memory.target:
        return replace(decision, memory=replace(memory, last_up=now))
    return decision


def _settled(target: int, reason: Reason, bound_by: BoundBy, memory: QueueMemory) -> Decision:
    """A number that a person gave."""
    return Decision(Step(target, reason), bound_by, _SENTENCES[reason], memory)


def _wish(situation: Situation, target: int) -> Wish:
    return wish_for(
        situation.queue,
        target,
        work=situation.work,
        history=situation.history,
        supply=situation.supply,
        crew=situation.crew,
    )


def _restrained(
    queue: QueueInput,
    wish: Wish,
    troubles: Sequence[Restraint],
    shrink: Restraint | None,
    target: int,
) -> tuple[int, int]:
    """Wish and keep under trouble: to the minimum, or no growth."""
    low, high = queue.scaling.min_replicas, queue.scaling.max_replicas
    if shrink is not None and shrink.at_most is not None:
        least = clamp(min(wish.workers, shrink.at_most), low, high)
        return least, least
    if troubles:
        # One worker is always allowed: without it no probe could end the trouble.
        return clamp(min(wish.workers, max(target, 1)), low, high), wish.keep
    return wish.workers, wish.keep


def _without_work(situation: Situation, taken: Step) -> Step:
    """Idle, though jobs may wait."""
    work, allowance = situation.work, situation.supply.allowance
    if taken.reason is Reason.IDLE and not work.wants_grants:
        return replace(taken, reason=Reason.SUSPENDED)
    if taken.reason in (Reason.IDLE, Reason.IDLE_TIMER) and work.held_back > 0:
        wait = allowance.frees_seconds - situation.queue.scaling.pod_start_seconds
        return Step(taken.target, Reason.DAY_USED_UP, taken.next_change_seconds or max(0.0, wait))
    return taken


def _staff(queue: QueueInput, crew: Workforce, target: int) -> Dismissal:
    if not queue.scaling.paused:
        return dismiss(queue, crew, target)
    everyone = tuple(sorted(m.beat.worker for m in crew.marked if m.beat))
    return Dismissal((), everyone, (), queue.replicas, 0)


def _eta(situation: Situation, target: int) -> float | None:
    workers = target
    if target == 0 and situation.work.held_back > 0:
        workers = situation.queue.scaling.max_replicas  # they come with the next day
    return eta_seconds(
        situation.work,
        situation.supply,
        situation.store,
        situation.history,
        pauses=pauses_of(situation.queue.credential, situation.store),
        slots=workers * situation.queue.scaling.slots_per_worker,
    )
