"""A release whose monitors, rules and dashboards a real Prometheus reads."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import yaml

from cluster.bench.kube import Object
from cluster.bench.prometheus import Alert, Prometheus
from cluster.bench.release import Release
from cluster.bench.space import Space
from cluster.bench.watch import until
from llmqueue.endings import end
from support.dashboards import Query, queries
from support.rendering import CHART

LABELS = {"release": "of-the-tests"}
"""By which Prometheus selects: what is shipped must carry the labels that values give."""
Alerts = Mapping[str, Mapping[str, Any]]


def default_alerts() -> Alerts:
    """Blocks of `rules.alerts` in the shipped values."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    return dict(values["rules"]["alerts"])


def short_alerts(**thresholds: Mapping[str, Any]) -> Alerts:
    """All of them, with seconds in place of minutes; `thresholds` change single ones."""
    return {
        name: {
            "for": "3s",
            **({"window": "20s"} if "window" in block else {}),
            **thresholds.get(name, {}),
        }
        for name, block in default_alerts().items()
    }


def values(space: Space, alerts: Alerts) -> Object:
    monitor = {"enabled": True, "interval": "1s", "labels": LABELS}
    return {
        "crds": {"install": False},  # the tests of this machine share one
        "redis": {"url": space.redis_url},
        "trialValkey": {"enabled": False},
        "metrics": {"podMonitor": monitor, "operatorMonitor": monitor},
        "rules": {"enabled": True, "labels": LABELS, "alerts": alerts},
        "dashboards": {"enabled": True},
    }


@dataclass
class Monitored:
    space: Space
    release: Release
    prometheus: Prometheus
    fired: dict[str, set[str]] = field(default_factory=dict)
    """Alert → queues it has fired for, if they are told apart."""
    pending_seconds: dict[str, float] = field(default_factory=dict)
    """Alert → the longest it was pending."""
    unanswered: list[Query] = field(default_factory=list)
    """Queries of dashboards that have not returned anything yet."""

    @classmethod
    @asynccontextmanager
    async def started(cls, space: Space, alerts: Alerts = {}) -> AsyncIterator[Monitored]:  # noqa: B006
        """Alerts are watched for as long as the block runs."""
        release = Release(space)
        async with Prometheus(space, selector={"matchLabels": LABELS}) as prometheus:
            await release.install(values(space, alerts))
            found = cls(space, release, prometheus)
            await until("all rules are evaluated", found._evaluated, seconds=60)
            await until("the leader is scraped", found._scraped, seconds=60)
            watching = asyncio.create_task(found._watch())
            try:
                yield found
                assert not watching.done(), f"nobody watched to the end: {watching.exception()}"
            finally:
                await end(watching)

    # ------------------------------------------------------------ alerts

    async def firing(self, name: str, queue: str = "", *, seconds: float) -> Alert:
        """Wait until an alert fires, for this queue if one is named."""

        async def look() -> Alert | None:
            for each in await self.prometheus.alerts():
                if (each.name, each.state) == (name, "firing") and _is_of(each, queue):
                    return each
            return None

        found = await until(f"{name} fires", look, seconds=seconds)
        assert found is not None
        return found

    async def gone(self, name: str, queue: str = "", *, seconds: float) -> None:
        """Wait until it neither fires nor is about to."""

        async def look() -> bool:
            alerts = await self.prometheus.alerts()
            return not any(each.name == name and _is_of(each, queue) for each in alerts)

        await until(f"{name} is over", look, seconds=seconds)

    async def _evaluated(self) -> bool:
        rules = await self.prometheus.rules()
        assert not [problem for problem in rules.values() if problem not in ("", "not yet")], rules
        return set(rules) == set(default_alerts()) and not any(rules.values())

    async def _scraped(self) -> bool:
        return bool(await self.prometheus.query("llmqueue_operator_leading == 1"))

    async def _watch(self) -> None:
        since: dict[tuple[str, ...], float] = {}
        while True:
            now, pending = time.monotonic(), set[tuple[str, ...]]()
            for each in await self.prometheus.alerts():
                if each.state == "firing":
                    self.fired.setdefault(each.name, set()).add(each.labels.get("queue", ""))
                key = (each.name, *(f"{k}={v}" for k, v in sorted(each.labels.items())))
                pending.add(key)
                lasted = now - since.setdefault(key, now)
                self.pending_seconds[each.name] = max(
                    lasted, self.pending_seconds.get(each.name, 0.0)
                )
            since = {key: at for key, at in since.items() if key in pending}
            await asyncio.sleep(1)

    # ------------------------------------------------------------ dashboards

    @asynccontextmanager
    async def dashboards(self, queues: Collection[str]) -> AsyncIterator[None]:
        """Ask all queries of all dashboards while the block runs: for each queue, until one of them
        gives an answer; `unanswered` holds the rest."""
        self.unanswered = _distinct(self.space.name, queues)
        asking = asyncio.create_task(self._ask(queues))
        try:
            yield
        finally:
            await end(asking)

    async def _ask(self, queues: Collection[str]) -> None:
        while True:
            for query in list(self.unanswered):
                for queue in queues:
                    found = await self.prometheus.query(query.expr.replace(_ANY, queue))
                    if any(not math.isnan(each.value) for each in found):
                        self.unanswered.remove(query)
                        break
            await asyncio.sleep(2)


_ANY = "any-queue"


def _distinct(namespace: str, queues: Collection[str]) -> list[Query]:
    found = queries({"namespace": namespace, "queue": _ANY, "__rate_interval": "20s"})
    return list({(q.dashboard, q.panel, q.expr): q for q in found}.values())


def _is_of(alert: Alert, queue: str) -> bool:
    return not queue or alert.labels.get("queue") == queue
