"""A provider in the store's own virtual time: minutes of limits pass in seconds of a test."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

from llmqueue.outcome import LimitHint, Outcome, Usage
from llmqueue.states import OutcomeClass
from llmqueue.store.port import Grant, Settlement
from support.storebench import StoreBench

STEP_SECONDS = 0.1
_MOST_SLEEP_SECONDS = 5.0
"""A worker that is told to wait asks again after this long at the latest, as the pump does."""


@dataclass
class VirtualProvider:
    """Counts requests in a sliding window of a minute. `others`: requests a second that somebody
    else makes on the same account. `headers`: it tells its limit. `retry_after`: it tells when."""

    limit: int
    headers: bool = False
    retry_after: bool = True
    others: float = 0.0
    window_seconds: float = 60.0
    accepted: list[float] = field(default_factory=list[float])
    refused: list[float] = field(default_factory=list[float])
    _window: deque[float] = field(default_factory=deque[float])
    _others_due: float = 0.0
    _now: float = 0.0

    def pass_time(self, now: float) -> None:
        """The others' calls up to `now` (seconds)."""
        self._others_due += self.others * (now - self._now if self._now else 0.0)
        self._now = now
        while self._others_due >= 1:
            self._others_due -= 1
            self._admit(now)

    def _admit(self, now: float) -> bool:
        while self._window and self._window[0] <= now - self.window_seconds:
            self._window.popleft()
        if len(self._window) >= self.limit:
            return False
        self._window.append(now)
        return True

    def call(self, now: float) -> Outcome:
        """Answer one request."""
        admitted = self._admit(now)
        (self.accepted if admitted else self.refused).append(now)
        hints: tuple[LimitHint, ...] = ()
        if self.headers:
            used = len(self._window)
            reset = self.window_seconds * used / self.limit
            hints = (LimitHint("requests", self.limit, max(0, self.limit - used), reset),)
        if admitted:
            return Outcome(OutcomeClass.SUCCESS, usage=Usage(1, 1), result=b"1", limits=hints)
        wait = None
        if self.retry_after:
            excess = max(0, len(self._window) - self.limit)
            wait = math.ceil(self._window[excess] + self.window_seconds - now)
        return Outcome(OutcomeClass.RATE, retry_after_seconds=wait, limits=hints)

    def use(self, start: float, end: float) -> float:
        """Share of the limit that was accepted between two times (seconds)."""
        count = sum(start <= at < end for at in self.accepted)
        return count / (self.limit * (end - start) / self.window_seconds)

    def refused_share(self, start: float, end: float) -> float:
        """429s among all calls between two times."""
        refused = sum(start <= at < end for at in self.refused)
        return refused / max(1, refused + sum(start <= at < end for at in self.accepted))


class VirtualWorkers:
    """Workers that come when they are told to, and calls that take `call_seconds`; a 429 is
    answered after `refusal_seconds`."""

    def __init__(
        self,
        bench: StoreBench,
        provider: VirtualProvider,
        *,
        workers: int = 4,
        slots: int = 25,
        call_seconds: float = 2.0,
        refusal_seconds: float = 0.2,
    ) -> None:
        self._bench, self._provider = bench, provider
        self._slots = slots
        self._call_seconds, self._refusal_seconds = call_seconds, refusal_seconds
        self._due = {f"w{n}:1": 0.0 for n in range(workers)}
        self._held = dict.fromkeys(self._due, 0)
        self._running: list[tuple[float, str, Grant, Outcome]] = []

    async def now(self) -> float:
        return await self._bench.now_ms() / 1000

    async def run(self, seconds: float) -> tuple[float, float]:
        """Let virtual time pass; returns when it began and ended."""
        await self._bench.claim(0)
        start = now = await self.now()
        while now < start + seconds:
            self._provider.pass_time(now)
            await self._settle(now)
            await self._claim(now)
            await self._bench.advance(STEP_SECONDS)
            now += STEP_SECONDS
            await self._keep_to(now)
        return start, now

    async def _keep_to(self, now: float) -> None:
        """Take back the real time that passed: the store's time is the provider's."""
        ahead = await self._bench.server_ms() - round(now * 1000)
        await self._bench.advance(-ahead / 1000)

    async def _settle(self, now: float) -> None:
        ended = [row for row in self._running if row[0] <= now]
        if not ended:
            return
        self._running = [row for row in self._running if row[0] > now]
        for _, worker, _, _ in ended:
            self._held[worker] -= 1
        await self._bench.store.settle(
            self._bench.queue,
            [Settlement(grant.id, grant.fence, outcome) for _, _, grant, outcome in ended],
        )

    async def _claim(self, now: float) -> None:
        for worker, due in self._due.items():
            free = self._slots - self._held[worker]
            if due > now or free <= 0:
                continue
            reply = await self._bench.claim(free, worker=worker)
            self._due[worker] = now + min(_MOST_SLEEP_SECONDS, reply.wait_seconds)
            if not reply.grants:
                continue
            sent = await self._bench.send(*reply.grants)
            for grant, ok in zip(reply.grants, sent, strict=True):
                if ok:
                    outcome = self._provider.call(now)
                    refused = outcome.kind is OutcomeClass.RATE
                    takes = self._refusal_seconds if refused else self._call_seconds
                    self._running.append((now + takes, worker, grant, outcome))
                    self._held[worker] += 1
