"""A worker's store in memory, for what no real one can be made to do: fail, hang or answer at one
exact point. It keeps the port's promises about fences; limits it has none.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from llmqueue.states import JobState, OutcomeClass, RefusalReason, WaitReason
from llmqueue.store.port import (
    AcquireReply,
    Beat,
    BeatReply,
    CallRequest,
    ClaimReply,
    ClaimRequest,
    FinishedCall,
    Grant,
    Journal,
    SentReply,
    Settlement,
    SettleReply,
)
from support.virtualtime import now


def grant(number: int = 1, *, fence: str = "", **fields: Any) -> Grant:
    values: dict[str, Any] = {
        "id": f"job-{number}",
        "fence": fence or f"fence-{number}",
        "payload": b'{"model":"m","messages":[]}',
        "attempt": 1,
        "model": "m",
        "tenant": "",
        "feature": "",
        "timeout_seconds": None,
        "crashes": 0,
        "probe": False,
        "possible_duplicate": False,
        "correlation_id": "",
        "input_tokens": 10,
        "output_tokens": 100,
        "max_output_tokens": 100,
    }
    return Grant(**(values | fields))


@dataclass
class MemoryStore:
    """Jobs by id; what was called, and when, is in `calls`.

    `faults[name]`: exceptions for the next calls of a method, None = none. `after[name]`: the same,
    raised after the method has done its work, as a lost reply. `gates[name]`: the method waits.
    """

    ready: deque[Grant] = field(default_factory=deque)
    states: dict[str, JobState] = field(default_factory=dict)
    fences: dict[str, str] = field(default_factory=dict)
    settled: list[Settlement] = field(default_factory=list)
    released: list[str] = field(default_factory=list)
    calls: list[tuple[float, str, Any]] = field(default_factory=list)
    faults: dict[str, deque[Exception | None]] = field(
        default_factory=lambda: defaultdict[str, deque[Exception | None]](deque)
    )
    after: dict[str, deque[Exception | None]] = field(
        default_factory=lambda: defaultdict[str, deque[Exception | None]](deque)
    )
    gates: dict[str, asyncio.Event] = field(default_factory=dict)
    refuse_sent: RefusalReason | None = None
    reply: ClaimReply | None = None
    """Answer of claims instead of the jobs."""
    lost: set[str] = field(default_factory=set)
    cancelled: set[str] = field(default_factory=set)
    draining: bool = False
    left: list[str] = field(default_factory=list)
    acquires: deque[AcquireReply] = field(default_factory=deque)
    """Answers of the next acquires; after them all are granted."""
    finished: list[FinishedCall] = field(default_factory=list)
    answers: dict[str, bytes] = field(default_factory=dict)
    in_doubt: set[str] = field(default_factory=set)
    progressed: list[tuple[float, float, str]] = field(default_factory=list)
    """(when, fraction, message)"""
    work: asyncio.Event = field(default_factory=asyncio.Event)
    _runs: int = 0

    def add(self, count: int = 1, **fields: Any) -> list[str]:
        ids: list[str] = []
        for _ in range(count):
            job = grant(len(self.states) + 1, **fields)
            self.states[job.id] = JobState.READY
            self.ready.append(job)
            ids.append(job.id)
        self.work.set()
        return ids

    def named(self, name: str) -> list[Any]:
        """Arguments of all calls of a method."""
        return [argument for _, called, argument in self.calls if called == name]

    def times(self, name: str) -> list[float]:
        return [at for at, called, _ in self.calls if called == name]

    async def _enter(self, name: str, argument: Any) -> None:
        self.calls.append((now(), name, argument))
        if name in self.gates:
            await self.gates[name].wait()
        if self.faults[name] and (fault := self.faults[name].popleft()):
            raise fault

    def _leave(self, name: str) -> None:
        if self.after[name] and (fault := self.after[name].popleft()):
            raise fault

    async def claim(self, request: ClaimRequest) -> ClaimReply:
        await self._enter("claim", request)
        if self.reply is not None:
            return self.reply
        if self.draining:
            return ClaimReply((), 1.0, WaitReason.DRAINING)
        grants: list[Grant] = []
        while self.ready and len(grants) < request.slots:
            job = self.ready.popleft()
            self._runs += 1
            job = grant(
                0, **{n: getattr(job, n) for n in job.__slots__} | {"fence": f"f{self._runs}"}
            )
            self.states[job.id], self.fences[job.id] = JobState.LEASED, job.fence
            grants.append(job)
        if not self.ready:
            self.work.clear()
        self._leave("claim")
        if len(grants) == request.slots:
            return ClaimReply(tuple(grants), 0.0, None)
        return ClaimReply(tuple(grants), 5.0, WaitReason.EMPTY)

    async def mark_sent(
        self, queue: str, items: Sequence[tuple[str, str]], *, credential: str
    ) -> list[SentReply]:
        await self._enter("mark_sent", (list(items), credential))
        replies: list[SentReply] = []
        for job, fence in items:
            if self.fences.get(job) != fence:
                replies.append(SentReply(False, RefusalReason.STALE))
            elif self.refuse_sent is not None:
                self._give_back(job)
                replies.append(SentReply(False, self.refuse_sent))
            else:
                self.states[job] = JobState.SENT
                replies.append(SentReply(True))
        self._leave("mark_sent")
        return replies

    def _give_back(self, job: str) -> None:
        self.states[job] = JobState.READY
        del self.fences[job]

    async def settle(self, queue: str, items: Sequence[Settlement]) -> list[SettleReply]:
        await self._enter("settle", list(items))
        replies: list[SettleReply] = []
        for item in items:
            if any(item.fence == known.fence for known in self.settled):
                replies.append(SettleReply("repeated", self.states[item.id]))
                continue
            self.settled.append(item)
            if self.fences.get(item.id) != item.fence:
                replies.append(SettleReply("fenced", self.states.get(item.id)))
                continue
            del self.fences[item.id]
            good = item.outcome.kind is OutcomeClass.SUCCESS
            self.states[item.id] = JobState.SUCCEEDED if good else JobState.DEAD
            replies.append(SettleReply("settled", self.states[item.id]))
        self._leave("settle")
        return replies

    async def acquire(self, queue: str, request: CallRequest) -> AcquireReply:
        await self._enter("acquire", request)
        if self.fences.get(request.id) != request.fence:
            return AcquireReply("lost")
        self._leave("acquire")
        if self.acquires:
            return self.acquires.popleft()
        charge = request.charge
        return AcquireReply(
            "granted", input_tokens=charge.input_tokens, output_tokens=charge.output_tokens
        )

    async def finish_calls(self, queue: str, calls: Sequence[FinishedCall]) -> list[bool]:
        await self._enter("finish_calls", list(calls))
        replies: list[bool] = []
        for call in calls:
            item = call.settlement
            if (item.fence, call.number) not in {
                (known.settlement.fence, known.number) for known in self.finished
            }:
                self.finished.append(call)
            if item.outcome.result is not None:
                self.answers[call.name] = item.outcome.result
            held = self.fences.get(item.id) == item.fence
            if held:
                self.states[item.id] = JobState.LEASED
            replies.append(held)
        self._leave("finish_calls")
        return replies

    async def journal(self, queue: str, job_id: str) -> Journal:
        await self._enter("journal", job_id)
        return Journal(dict(self.answers), frozenset(self.in_doubt))

    async def progress(
        self, queue: str, job_id: str, fence: str, *, fraction: float, message: str
    ) -> None:
        await self._enter("progress", (job_id, fence))
        self.progressed.append((now(), fraction, message))

    async def release(self, queue: str, items: Sequence[tuple[str, str]]) -> None:
        await self._enter("release", list(items))
        for job, fence in items:
            if self.fences.get(job) == fence:
                self._give_back(job)
                self.released.append(job)
        self._leave("release")

    async def beat(self, beat: Beat) -> BeatReply:
        await self._enter("beat", beat)
        return BeatReply(
            frozenset(self.lost & set(beat.leases)),
            frozenset(self.cancelled & set(beat.leases)),
            self.draining,
        )

    async def leave(self, queue: str, worker: str) -> None:
        await self._enter("leave", worker)
        self.left.append(worker)

    async def wait_for_work(self, queue: str, timeout_seconds: float) -> bool:
        await self._enter("wait_for_work", timeout_seconds)
        try:
            async with asyncio.timeout(timeout_seconds):
                await self.work.wait()
        except TimeoutError:
            return False
        return True
