"""Pods that went without having been chosen: evicted, deleted by hand, lost with their node."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from llmqueue_operator.planning import PodPhase
from llmqueue_operator.views import PodState


class Removals:
    """Compares each tick's pods with those of the tick before."""

    def __init__(self) -> None:
        self._staying: dict[str, frozenset[str]] = {}
        self._named: dict[str, set[str]] = {}
        self._rolling: dict[str, bool] = {}

    def forget(self, key: str | None = None) -> None:
        """At the start of a term, or when an LLMQueue is gone."""
        if key is None:
            self._staying.clear()
            self._named.clear()
            self._rolling.clear()
        else:
            self._staying.pop(key, None)
            self._named.pop(key, None)
            self._rolling.pop(key, None)

    def unplanned(
        self, key: str, pods: Iterable[PodState], named: Collection[str], *, rolling: bool
    ) -> int:
        """How many went since the last tick though no plan had named them.

        `named`: uids that may go from now on. A rollout names its own.
        """
        staying = frozenset(p.uid for p in pods if p.phase is not PodPhase.TERMINATING)
        gone = self._staying.get(key, frozenset()) - staying
        known = self._named.setdefault(key, set())
        # The last old pod goes when only new ones are left: the rollout of a moment ago names it.
        was_rolling, self._rolling[key] = self._rolling.get(key, False), rolling
        count = 0 if rolling or was_rolling else len(gone - known)
        self._staying[key] = staying
        self._named[key] = (known | set(named)) & staying
        return count
