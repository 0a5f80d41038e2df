"""The jobs that a process holds: started, told to stop, settled, released."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import structlog

from llmqueue.errors import StoreError
from llmqueue.outcome import Outcome
from llmqueue.providers.http import NotSent
from llmqueue.states import OutcomeClass
from llmqueue.store.port import Grant, SentReply, Settlement, SettleReply, WorkerStore
from llmqueue_worker.backoff import Backoff
from llmqueue_worker.batching import Batcher
from llmqueue_worker.metrics import WorkerMetrics
from llmqueue_worker.runner import Runner

log = structlog.get_logger(__name__)


class Stop(Enum):
    """Why a run is cut short."""

    CANCELLED = "cancelled"
    LOST = "lost"
    DRAIN = "drain"


class Refused(NotSent):
    """The store refused and has released the job already."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a process works: queue, its own name in the store, how many jobs at once."""

    queue: str
    worker: str
    slots: int


@dataclass(slots=True, eq=False)
class Held:
    """One job in this process."""

    grant: Grant
    started: float
    timeout_seconds: float
    sent: bool = False
    stop: Stop | None = None
    task: asyncio.Task[None] | None = None


class Work:
    """Runs grants and sees each of them settled or released, however often it must ask."""

    def __init__(
        self,
        store: WorkerStore,
        runner: Runner,
        metrics: WorkerMetrics,
        *,
        queue: str,
        request_seconds: float,
    ) -> None:
        self._store = store
        self._runner = runner
        self._metrics = metrics
        self._queue = queue
        self._request_seconds = request_seconds
        self._settler: Batcher[Settlement, SettleReply] = Batcher(self._settle)
        self._sender: Batcher[tuple[str, str], SentReply] = Batcher(self._mark_sent)
        self._releaser: Batcher[tuple[str, str], None] = Batcher(self._release)
        self.held: dict[str, Held] = {}
        """Fence → job."""
        self.finished = 0
        self.changed = asyncio.Event()
        """Set whenever a slot became free."""

    @property
    def clean(self) -> bool:
        return all(held.grant.crashes == 0 for held in self.held.values())

    def longest_remaining_seconds(self) -> float:
        now = time.time()
        return max(
            (held.started + held.timeout_seconds - now for held in self.held.values()), default=0.0
        )

    def start(self, grant: Grant) -> None:
        held = Held(grant, time.time(), grant.timeout_seconds or self._request_seconds)
        self.held[grant.fence] = held
        held.task = asyncio.create_task(self._one(held), name=f"job {grant.id}")

    def stop(self, held: Held, why: Stop) -> None:
        """Cut a run short; what it comes to is settled or released as always."""
        if held.stop is None and held.task is not None:
            held.stop = why
            held.task.cancel()

    async def idle(self) -> None:
        """Wait until nothing is held."""
        while self.held:
            self.changed.clear()
            await self.changed.wait()

    # ------------------------------------------------------------ one job

    async def _one(self, held: Held) -> None:
        try:
            try:
                settlement = await self._run(held)
            except asyncio.CancelledError:
                settlement = await self._cut_short(held)
            if settlement is not None:
                await self._book(held, settlement)
        finally:
            del self.held[held.grant.fence]
            self.finished += 1
            self.changed.set()

    async def _run(self, held: Held) -> Settlement | None:
        grant = held.grant

        async def before_send() -> None:
            await self._decide(held)

        try:
            return await self._runner.run(grant, before_send)
        except Refused:
            return None
        except NotSent:
            await self._releaser.submit((grant.id, grant.fence))
            return None
        except Exception:
            log.exception("run_failed", job=grant.id)
            message = "a defect in the worker; see its log"
            kind = OutcomeClass.UNKNOWN if held.sent else OutcomeClass.TRANSIENT
            return self._runner.stopped(
                grant, Outcome(kind, sent=held.sent, message=message), held.started
            )

    async def _cut_short(self, held: Held) -> Settlement | None:
        """What a run that was stopped comes to; an unsent one is only released."""
        if not held.sent:
            if held.stop is not Stop.LOST:
                await self._releaser.submit((held.grant.id, held.grant.fence))
            return None
        kind = OutcomeClass.CANCELLED if held.stop is Stop.CANCELLED else OutcomeClass.UNKNOWN
        message = f"stopped while the call was running ({held.stop.value if held.stop else '-'})"
        return self._runner.stopped(held.grant, Outcome(kind, message=message), held.started)

    async def _book(self, held: Held, settlement: Settlement) -> None:
        self._metrics.calls.labels(str(settlement.outcome.kind)).inc()
        self._metrics.call_seconds.observe(time.time() - held.started)
        reply = await self._settler.submit(settlement)
        if reply.verdict == "fenced":
            self._metrics.fenced.inc()
            log.warning("settle_fenced", job=settlement.id, state=reply.state)

    async def _decide(self, held: Held) -> None:
        """Ask whether the request may leave. Raises Refused, NotSent."""
        grant = held.grant
        if held.stop is not None:
            raise NotSent
        try:
            reply = await self._sender.submit((grant.id, grant.fence))
        except StoreError as exc:
            self._metrics.store_errors.labels("sent").inc()
            raise NotSent from exc
        if not reply.ok:
            self._metrics.refused.labels(str(reply.reason)).inc()
            raise Refused
        held.sent = True

    # ------------------------------------------------------------ batches

    async def _mark_sent(self, items: Sequence[tuple[str, str]]) -> Sequence[SentReply]:
        credential = self._runner.credential()
        return await self._store.mark_sent(self._queue, items, credential=credential)

    async def _settle(self, items: Sequence[Settlement]) -> Sequence[SettleReply]:
        """Repeated until acknowledged: a finished call is never dropped."""
        backoff = Backoff()
        while True:
            try:
                return await self._store.settle(self._queue, items)
            except StoreError as exc:
                self._metrics.store_errors.labels("settle").inc()
                log.warning("settle_waits", jobs=len(items), error=str(exc))
                await asyncio.sleep(backoff.next())

    async def _release(self, items: Sequence[tuple[str, str]]) -> Sequence[None]:
        backoff = Backoff()
        while True:
            try:
                await self._store.release(self._queue, items)
            except StoreError as exc:
                self._metrics.store_errors.labels("release").inc()
                log.warning("release_waits", jobs=len(items), error=str(exc))
                await asyncio.sleep(backoff.next())
            else:
                return [None] * len(items)
