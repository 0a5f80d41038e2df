"""From wish to target over time: up at once, down by window, to zero by the idle timer.

One clock: each answer says why the target is what it is and when it may change next.
"""

from __future__ import annotations

from dataclasses import dataclass

from llmqueue_operator.planning.reasons import Reason
from llmqueue_operator.planning.types import QueueMemory, ScalingSpec

Wishes = tuple[tuple[float, int], ...]


@dataclass(frozen=True, slots=True)
class Step:
    """The next target, why, and in how many seconds it may change by itself (None: nothing is
    waited for)."""

    target: int
    reason: Reason
    next_change_seconds: float | None = None


def in_force(wishes: Wishes, wish: int, now: float, window_seconds: float) -> Wishes:
    """Wishes that were in force within the window, highest (and oldest) first.

    A wish is in force until the next one, so a gap between ticks counts as the wish before it.
    Entries that a later, higher one covers are left out.
    """
    last = ((now, wishes[-1][1]),) if wishes else ()
    kept: list[tuple[float, int]] = []
    for entry in (*wishes[:-1], *last, (now, wish)):
        if entry[0] <= now - window_seconds:
            continue
        while kept and kept[-1][1] <= entry[1]:
            kept.pop()
        kept.append(entry)
    return tuple(kept)


def idle_since(memory: QueueMemory, keep: int, now: float, *, probe: bool) -> float | None:
    """When the wish became 0; a probe of a paused provider does not interrupt it."""
    if keep == 0:
        return now if memory.idle_since is None else memory.idle_since
    return memory.idle_since if probe else None


def step(memory: QueueMemory, wish: int, scaling: ScalingSpec, now: float) -> Step:
    """Move the last target towards the wish; `memory` has this tick's wishes and idle time."""
    last, highest = memory.target, memory.wishes[0][1]
    if wish > last:
        return Step(wish, Reason.SCALED_UP)
    if highest >= last and memory.wishes[-1][1] >= last:
        return Step(last, Reason.IDLE if last == 0 else Reason.STEADY)
    window = scaling.stabilization_seconds
    # The target may fall when the last wish that holds it up leaves the window.
    holding = [at for at, wished in memory.wishes if wished >= last]
    waits = [at + window - now for at in holding]
    if memory.last_up is not None:
        waits.append(memory.last_up + window - now)
    wait = max(waits, default=0.0)
    if wait > 0:
        return Step(last, Reason.STABILIZATION_WINDOW, wait)
    return _down(memory, highest, scaling, now)


def _down(memory: QueueMemory, highest: int, scaling: ScalingSpec, now: float) -> Step:
    last = memory.target
    if highest > 0:
        return Step(highest, Reason.SCALED_DOWN)
    if last > 1:
        return Step(1, Reason.SCALED_DOWN)
    since = now if memory.idle_since is None else memory.idle_since
    wait = since + scaling.idle_seconds - now
    if wait > 0:
        return Step(last, Reason.IDLE_TIMER, wait)
    return Step(0, Reason.SCALED_TO_ZERO)
