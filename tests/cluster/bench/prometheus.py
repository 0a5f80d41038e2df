"""A real Prometheus in a space, driven by its operator through the monitors and rules there."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

import httpx2

from cluster.bench import prometheus_objects as objects
from cluster.bench.kube import CommandFailed
from cluster.bench.space import Space
from cluster.bench.watch import until

START_SECONDS = 90.0


@dataclass(frozen=True, slots=True)
class Sample:
    """`name` is empty where an expression has taken it away."""

    name: str
    labels: Mapping[str, str]
    value: float
    at: float


@dataclass(frozen=True, slots=True)
class Alert:
    """`state` is pending or firing."""

    name: str
    state: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Target:
    """`up` as of its last scrape; `problem` says why not."""

    up: bool
    problem: str
    labels: Mapping[str, str]


class Prometheus:
    """`async with Prometheus(space) as prometheus: await prometheus.query("up")`.

    It scrapes and evaluates what the monitors and rules of the space's namespace say that its
    selector matches, every second unless they name an interval of their own.
    """

    def __init__(
        self, space: Space, *, interval_seconds: int = 1, selector: Mapping[str, Any] | None = None
    ) -> None:
        self._space, self._interval_seconds = space, interval_seconds
        self._selector = dict(selector or {})
        self._client = httpx2.AsyncClient(timeout=20, trust_env=False)
        self.url = ""

    async def __aenter__(self) -> Self:
        space = self._space
        made = [
            *objects.operator(space.name),
            *objects.prometheus(
                space.name, interval_seconds=self._interval_seconds, selector=self._selector
            ),
        ]
        await space.kube.apply(*made, namespace=space.name)
        try:
            _, outside = await space.reach(objects.NAME, objects.PORT, seconds=START_SECONDS)
            self.url = f"http://{outside}"
            await until("Prometheus is ready", self._ready, seconds=START_SECONDS)
            await until("its reloader watches", self._watches, seconds=START_SECONDS)
        except BaseException as exc:
            await self.__aexit__(type(exc))
            raise
        return self

    async def __aexit__(self, kind: object, *exc: object) -> None:
        if kind is not None:
            await self._tell()
        await self._client.aclose()

    async def _tell(self) -> None:
        """What the two said last: a configuration that is refused is seen nowhere else."""
        for pods in (f"app={objects.OPERATOR}", f"prometheus={objects.NAME}"):
            with suppress(CommandFailed):
                print(
                    await self._space.kube.run(
                        *("-n", self._space.name, "logs", "-l", pods, "--all-containers"),
                        "--tail=5",
                    )
                )

    async def query(self, expression: str) -> list[Sample]:
        """What an expression gives now: an instant vector, or a number as one sample."""
        data = await self._ask("query", query=expression)
        if data["resultType"] == "scalar":
            at, value = data["result"]
            return [Sample("", {}, float(value), float(at))]
        assert data["resultType"] == "vector", expression
        found: list[Sample] = []
        for each in data["result"]:
            labels = dict(each["metric"])
            at, value = each["value"]
            found.append(Sample(labels.pop("__name__", ""), labels, float(value), float(at)))
        return found

    async def alerts(self) -> list[Alert]:
        """Those that are pending or firing."""
        data = await self._ask("alerts")
        return [
            Alert(each["labels"]["alertname"], each["state"], each["labels"], each["annotations"])
            for each in data["alerts"]
        ]

    async def firing(self) -> set[str]:
        return {each.name for each in await self.alerts() if each.state == "firing"}

    async def rules(self) -> dict[str, str]:
        """Rules that were evaluated: name → what went wrong at the last time, mostly nothing."""
        groups = (await self._ask("rules"))["groups"]
        return {
            rule["name"]: rule.get("lastError", "") if rule["health"] != "unknown" else "not yet"
            for group in groups
            for rule in group["rules"]
        }

    async def targets(self) -> list[Target]:
        data = await self._ask("targets", state="active")
        return [
            Target(each["health"] == "up", each["lastError"], each["labels"])
            for each in data["activeTargets"]
        ]

    async def _ready(self) -> bool:
        try:
            response = await self._client.get(f"{self.url}/-/ready")
        except httpx2.TransportError:
            return False
        return response.status_code == 200

    async def _watches(self) -> bool:
        """What changes before is seen minutes later: its first try may come before Prometheus."""
        try:
            log = await self._space.kube.run(
                *("-n", self._space.name, "logs", f"prometheus-{objects.NAME}-0"),
                *("-c", "config-reloader"),
            )
        except CommandFailed:
            return False
        return "started watching config file" in log

    async def _ask(self, what: str, **parameters: str) -> Any:
        response = await self._client.get(f"{self.url}/api/v1/{what}", params=parameters)
        answer = response.json()
        assert answer["status"] == "success", f"{what} {parameters}: {answer.get('error')}"
        return answer["data"]
