"""Others that write a Deployment's replicas: reverted once, then left alone for growing pauses.

Pure; `now` is any clock in seconds that does not step back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llmqueue_operator.planning import Condition, ConditionType, Reason

QUIET_SECONDS = 600.0
"""A writer that was reverted and stayed away for so long is forgiven."""
_FIRST_PAUSE_SECONDS = 60.0
_MOST_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Contest:
    """What is remembered of the quarrel over one Deployment."""

    reverted_at: float | None = None
    pause_seconds: float = 0.0
    managers: tuple[str, ...] = ()

    def may_write(self, now: float) -> bool:
        """Whether a conflict may be overruled now."""
        if self.reverted_at is None or now - self.reverted_at >= QUIET_SECONDS:
            return True
        return 0 < self.pause_seconds <= now - self.reverted_at

    def reverted(self, managers: Sequence[str], now: float) -> Contest:
        """After overruling them."""
        # Whoever stayed away is forgiven in `settled`: a pause that is still there goes on growing.
        return Contest(now, min(_MOST_SECONDS, self.pause_seconds * 2), tuple(managers))

    def lost(self, managers: Sequence[str], now: float) -> Contest:
        """They wrote again: pause from now on."""
        if self.pause_seconds:
            return Contest(self.reverted_at, self.pause_seconds, tuple(managers))
        return Contest(now, _FIRST_PAUSE_SECONDS, tuple(managers))

    def settled(self, foreign: Sequence[str], now: float) -> Contest:
        """No conflict in this tick; over once nobody else owns the field and time has passed."""
        over = self.reverted_at is not None and now - self.reverted_at >= QUIET_SECONDS
        return Contest() if over and not foreign else self

    def condition(self) -> Condition | None:
        """ReplicaConflict, while paused."""
        if not self.pause_seconds:
            return None
        names = ", ".join(self.managers)
        return Condition(
            ConditionType.REPLICA_CONFLICT,
            True,
            Reason.FOREIGN_WRITER,
            f"{names} also writes the Deployment's replicas: remove it, or set"
            " spec.scaling.paused or spec.scaling.replicasOverride",
        )
