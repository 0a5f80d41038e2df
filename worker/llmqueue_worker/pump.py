"""One pump per process: asks for its free slots, starts what it is given, sleeps as it is told."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

import structlog

from llmqueue.credentials import Credential, CredentialFile
from llmqueue.errors import StoreError, StoreUnavailable, UnknownQueue, UsageError
from llmqueue.states import WaitReason
from llmqueue.store.port import ClaimReply, ClaimRequest, Grant, WorkerStore
from llmqueue_worker.backoff import Backoff
from llmqueue_worker.batching import MOST_ITEMS
from llmqueue_worker.inflight import InFlight
from llmqueue_worker.metrics import Stats

POLL_SECONDS = 5.0
LIMITED_SECONDS = 30.0
"""Longest sleep on a limit: a raised one is noticed by then, and one claim a grant stays one."""
_JITTER_SECONDS = 0.02
_WOKEN_GAP_SECONDS = 0.2
_LIMITED = frozenset(
    {
        WaitReason.REQUESTS,
        WaitReason.TOKENS,
        WaitReason.INPUT_TOKENS,
        WaitReason.OUTPUT_TOKENS,
        WaitReason.BLOCKED,
    }
)
_WOKEN = frozenset(
    {WaitReason.EMPTY, WaitReason.IN_FLIGHT, WaitReason.SUSPENDED, WaitReason.BREAKER}
)
"""Their end is announced by a wake-up marker. Others would take the marker from a worker that can
use it: a draining one, one whose credential is paused."""

_log = structlog.get_logger()


class Until(Enum):
    """What ends a rest before its time."""

    SLOT = auto()
    """The last claim filled all slots: the next one is due as soon as one is free."""
    WORK = auto()
    TIME = auto()


@dataclass(frozen=True, slots=True)
class Rest:
    until: Until
    seconds: float = 0.0


def rest_after(reply: ClaimReply) -> Rest:
    """When the next claim is due."""
    if reply.reason is None:
        return Rest(Until.SLOT)
    if reply.reason in _WOKEN:
        return Rest(Until.WORK, min(reply.wait_seconds, POLL_SECONDS))
    bound = LIMITED_SECONDS if reply.reason in _LIMITED else POLL_SECONDS
    wait = min(reply.wait_seconds, bound)
    return Rest(Until.TIME, wait + random.uniform(0, min(_JITTER_SECONDS, 0.1 * wait)))


class Pump:
    """Claims until it is told to stop, or until `quota` says that this process has done enough.

    Args:
        start: takes a granted job and the credential to call with.
        quota: how many jobs may still be started; 0 ends the pump.
    """

    def __init__(
        self,
        store: WorkerStore,
        in_flight: InFlight,
        stats: Stats,
        credentials: CredentialFile,
        *,
        queue: str,
        worker: str,
        start: Callable[[Grant, Credential], None],
        quota: Callable[[], int],
    ) -> None:
        self._store, self._in_flight, self._stats = store, in_flight, stats
        self._credentials, self._start, self._quota = credentials, start, quota
        self._queue, self._worker = queue, worker
        self._stopping = asyncio.Event()
        self._released = asyncio.Event()
        self._released.set()
        self._backoff = Backoff()
        self._trouble = ""

    def stop(self) -> None:
        """No claim is made after this; one that is under way is waited for by `run`."""
        self._stopping.set()
        self._released.set()
        self._in_flight.freed.set()

    def hold(self, marked: bool) -> None:
        """Take nothing new while a drain mark holds."""
        if marked and not self._stopping.is_set():
            self._released.clear()
        else:
            self._released.set()

    async def run(self) -> None:
        while not self._stopping.is_set():
            await self._released.wait()
            wanted = min(self._in_flight.free, self._quota(), MOST_ITEMS)
            if self._stopping.is_set() or self._quota() <= 0:
                return
            if wanted <= 0:
                await self._slot()
                continue
            await self._rest(await self._claim(wanted))

    async def _claim(self, slots: int) -> Rest:
        self._in_flight.freed.clear()
        self._in_flight.cleared.clear()
        try:
            credential = self._credentials.read()
            reply = await self._store.claim(
                ClaimRequest(
                    self._queue,
                    self._worker,
                    slots,
                    credential=credential.fingerprint,
                    clean=self._in_flight.clean,
                )
            )
        except StoreUnavailable as exc:
            self._stats.claim_failures += 1
            self._tell("store-unavailable", str(exc))
            return Rest(Until.TIME, self._backoff.next())
        except UsageError as exc:
            self._stats.claim_failures += 1
            unknown = isinstance(exc, UnknownQueue)
            self._tell("unconfigured" if unknown else "credential-unusable", str(exc))
            return Rest(Until.TIME, POLL_SECONDS)
        except StoreError as exc:
            self._stats.claim_failures += 1
            self._tell("store-misconfigured", str(exc))
            return Rest(Until.TIME, POLL_SECONDS)
        except Exception:  # an edge: the pump outlives whatever it meets
            self._stats.claim_failures += 1
            _log.exception("claim-failed", queue=self._queue)
            return Rest(Until.TIME, self._backoff.next())
        return self._take(reply, credential)

    def _take(self, reply: ClaimReply, credential: Credential) -> Rest:
        self._backoff.reset()
        self._stats.claimed(len(reply.grants), reply.reason)
        for grant in reply.grants:
            self._start(grant, credential)
        if reply.reason is WaitReason.UNCONFIGURED:
            self._tell("unconfigured", f"the store has no configuration of {self._queue}")
        else:
            self._tell("", "")
        return rest_after(reply)

    def _tell(self, trouble: str, message: str) -> None:
        """Log what keeps the pump from claiming, once per change."""
        if trouble == self._trouble:
            return
        if trouble:
            _log.warning(trouble, queue=self._queue, message=message)
        else:
            _log.info("claiming-again", queue=self._queue, after=self._trouble)
        self._trouble = trouble

    # ------------------------------------------------------------ rests

    async def _rest(self, rest: Rest) -> None:
        if self._stopping.is_set():
            return
        if rest.until is Until.WORK:
            await self._work(rest.seconds)
        elif rest.until is Until.TIME:
            await self._time(rest.seconds)

    async def _slot(self) -> None:
        """Until a slot is free."""
        await self._in_flight.freed.wait()
        self._in_flight.freed.clear()

    async def _time(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return

    async def _work(self, seconds: float) -> None:
        """Until the store announces work, or one more suspect job may run; at most `seconds`."""
        waiter = asyncio.create_task(self._store.wait_for_work(self._queue, seconds))
        others = [
            asyncio.create_task(event.wait()) for event in (self._stopping, self._in_flight.cleared)
        ]
        await asyncio.wait((waiter, *others), return_when=asyncio.FIRST_COMPLETED)
        for other in others:
            other.cancel()
        if not waiter.done():
            # Not waited for: redis-py may swallow a cancellation and block to its end.
            waiter.cancel()
            waiter.add_done_callback(_forget)
        elif waiter.exception() is not None:
            await self._time(self._backoff.next())


def _forget(waiter: asyncio.Task[bool]) -> None:
    """Whatever it came to is of no use any more."""
    if not waiter.cancelled():
        waiter.exception()
