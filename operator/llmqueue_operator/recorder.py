"""What people are told: Kubernetes Events, each once, and the same in the log."""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime
from time import monotonic
from typing import Any

import structlog

from llmqueue.documents import objects_at
from llmqueue.spec import API_VERSION, KIND
from llmqueue_operator.errors import ApiError
from llmqueue_operator.kube import Cluster
from llmqueue_operator.planning import QueuePlan
from llmqueue_operator.views import QueueView

COMPONENT = "llmqueue-operator"
AGAIN_SECONDS = 300.0
"""The same news of a condition is told at most so often."""
_MOST_WAITING = 1000
_MESSAGE_LENGTH = 1000

_log = structlog.get_logger()


class Recorder:
    """Posts in the background; what can't be posted is only logged."""

    def __init__(self, cluster: Cluster, *, pod: str) -> None:
        self._cluster, self._pod = cluster, pod
        self._waiting: deque[tuple[str, dict[str, object]]] = deque(maxlen=_MOST_WAITING)
        self._added = asyncio.Event()
        self._said: dict[tuple[str, str], str] = {}
        self._told: dict[tuple[str, str], float] = {}

    def forget(self, key: str | None = None) -> None:
        """The next change of each queue, or of one, is news again."""
        self._said = {k: v for k, v in self._said.items() if key is not None and k[0] != key}
        self._told = {k: v for k, v in self._told.items() if key is not None and k[0] != key}

    def plan(self, view: QueueView, plan: QueuePlan) -> None:
        """A changed target, a condition lost or regained."""
        before = self._swap(view.key, "target", str(plan.target))
        if before is not None and before != str(plan.target):
            up = plan.target > int(before)
            self.event(
                view,
                "ScaledUp" if up else "ScaledDown",
                f"workers {before} → {plan.target}, bound by {plan.bound_by}: {plan.message}",
            )

    def conditions(
        self, view: QueueView, before: Mapping[str, Any], after: Mapping[str, Any]
    ) -> None:
        """Those whose status or reason changed between two statuses."""
        known = {c["type"]: c for c in objects_at(before, "conditions")}
        for condition in objects_at(after, "conditions"):
            was = known.get(condition["type"])
            bad = condition["status"] == "False"
            if condition["type"].endswith("Conflict"):
                bad = not bad
            if was is None and not bad:
                continue
            if was and (was["status"], was["reason"]) == (condition["status"], condition["reason"]):
                continue
            because = f": {condition['message']}" if condition["message"] else ""
            text = f"{condition['type']} is {condition['status']}{because}"
            if self._told_lately(view, condition):
                continue
            self.event(view, condition["reason"], text, warning=bad)

    def _told_lately(self, view: QueueView, condition: Mapping[str, Any]) -> bool:
        """What comes and goes is told once in a while: the status has it all the time."""
        topic, now = f"{condition['type']} {condition['status']} {condition['reason']}", monotonic()
        key = (view.key, topic)
        if key in self._told and now - self._told[key] < AGAIN_SECONDS:
            return True
        self._told[key] = now
        return False

    def once(self, view: QueueView, topic: str, reason: str, message: str) -> None:
        """A note that is news only when it changes."""
        if self._swap(view.key, topic, message) != message:
            self.event(view, reason, message, warning=True)

    def _swap(self, key: str, topic: str, value: str) -> str | None:
        before = self._said.get((key, topic))
        self._said[key, topic] = value
        return before

    def event(self, view: QueueView, reason: str, message: str, *, warning: bool = False) -> None:
        """Post an Event about an LLMQueue."""
        namespace, name = view.key.split("/", 1)
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        _log.info("event", queue=view.key, reason=reason, message=message)
        self._waiting.append(
            (
                namespace,
                {
                    "apiVersion": "v1",
                    "kind": "Event",
                    "metadata": {"name": f"{name}.{secrets.token_hex(8)}", "namespace": namespace},
                    "involvedObject": {
                        "apiVersion": API_VERSION,
                        "kind": KIND,
                        "name": name,
                        "namespace": namespace,
                        "uid": view.uid,
                    },
                    "type": "Warning" if warning else "Normal",
                    "reason": reason,
                    "message": message[:_MESSAGE_LENGTH],
                    "source": {"component": COMPONENT, "host": self._pod},
                    "reportingComponent": COMPONENT,
                    "reportingInstance": self._pod,
                    "firstTimestamp": now,
                    "lastTimestamp": now,
                    "count": 1,
                },
            )
        )
        self._added.set()

    async def run(self) -> None:
        """Post what waits, until cancelled."""
        while True:
            await self._added.wait()
            self._added.clear()
            while self._waiting:
                namespace, event = self._waiting.popleft()
                try:
                    await self._cluster.post_event(namespace, event)
                except ApiError as exc:
                    _log.warning("event-not-posted", namespace=namespace, error=str(exc))
