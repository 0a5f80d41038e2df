"""The operator's loop: what is due is looked at together and reconciled side by side."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from typing import Any

import structlog

from llmqueue.endings import end
from llmqueue.errors import LlmqueueError
from llmqueue_operator.apply import Applier
from llmqueue_operator.connections import Connections
from llmqueue_operator.errors import ApiError, NotLeading
from llmqueue_operator.freshness import Freshness
from llmqueue_operator.groups import Assembly
from llmqueue_operator.kube import DEPLOYMENTS, LLMQUEUES, PODS, Cluster, Kind
from llmqueue_operator.leadership import Leadership
from llmqueue_operator.lookout import Lookout, Sight
from llmqueue_operator.metrics import Metrics
from llmqueue_operator.reconciler import QUIET_SECONDS, TICK_SECONDS, Parts, Reconciler
from llmqueue_operator.recorder import Recorder
from llmqueue_operator.registrations import retire
from llmqueue_operator.settings import OperatorSettings
from llmqueue_operator.storewatch import StoreWatch
from llmqueue_operator.views import QueueView
from llmqueue_operator.workqueue import WorkQueue
from llmqueue_operator.world import Listing, World, key_of

KINDS = (LLMQUEUES, DEPLOYMENTS, PODS)
AT_ONCE = 16
"""Budgets that are written at the same time."""
_GAP_SECONDS = 0.05
"""A burst of events is one: least time between two looks."""
_RECONNECT_SECONDS = 0.5
_RETIRE_SECONDS = 5.0
_MOST_RETIRE_SECONDS = 300.0
_FRESHNESS_SECONDS = 20.0

_log = structlog.get_logger()
Object = Mapping[str, Any]


class Controller:
    """One replica. `start` and `stop` are called inside kopf's loop."""

    def __init__(self, settings: OperatorSettings, cluster: Cluster, metrics: Metrics) -> None:
        self._settings, self._cluster, self._metrics = settings, cluster, metrics
        self.world = World()
        self._freshness = Freshness(time.monotonic)
        self.stale_watch: str | None = None
        """The kind of objects whose watch brings no news, though the server answers."""
        self._queue = WorkQueue(time.monotonic)
        self._connections = Connections(settings.connections_dir)
        self._recorder = Recorder(cluster, pod=settings.pod)
        self.leadership = Leadership(
            cluster,
            namespace=settings.namespace,
            identity=settings.pod,
            installation=settings.installation,
            clock=time.monotonic,
        )
        self._lookout = Lookout(
            self._connections,
            time.monotonic,
            check=self.leadership.check,
            tell=metrics.looked_at_store,
        )
        self._storewatch = StoreWatch(self._connections, metrics)
        applier = Applier(
            cluster,
            self.world,
            self._recorder,
            check=self.leadership.check,
            clock=time.monotonic,
        )
        self._reconciler = Reconciler(
            Parts(
                settings=settings,
                cluster=cluster,
                world=self.world,
                connections=self._connections,
                lookout=self._lookout,
                recorder=self._recorder,
                applier=applier,
                metrics=metrics,
                check=self.leadership.check,
            )
        )
        self._gone: set[str] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._working: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(AT_ONCE)
        self.failure: BaseException | None = None
        """What ended this replica for good."""
        self.failed = asyncio.Event()

    # ------------------------------------------------------------ what is seen

    def observe(self, kind: Kind, raw: Object, *, deleted: bool) -> None:
        """One event of a watch; who is concerned gets a look."""
        self._freshness.seen(kind, raw, deleted=deleted)
        key = key_of(kind, raw)
        before = self.world.queues.get(key)
        self.world.observe(kind, raw, deleted=deleted)
        after = self.world.queues.get(key)
        if kind is LLMQUEUES:
            if after is None or after.deleting:
                if self.leadership.leading.is_set():  # a new term looks for itself
                    self._gone.add(key)
            elif before is not None and _only_status(before, after):
                return  # our own writing
        self._attend(key)

    def _attend(self, key: str) -> None:
        budget = self.world.budget_of(key)
        if budget is not None:
            self._queue.add(budget)

    # ------------------------------------------------------------ life

    def start(self) -> None:
        """Take part: the election, and the loop for the terms that it brings."""
        for name, work in (
            ("leadership", self.leadership.run()),
            ("terms", self._terms()),
            ("events", self._recorder.run()),
        ):
            task = asyncio.create_task(work, name=name)
            task.add_done_callback(self._ended)
            self._tasks.append(task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (failure := task.exception()) is not None:
            self.failure = failure
            self.failed.set()

    async def stop(self) -> None:
        """Nothing more is written; the Lease is given back."""
        await end(*self._tasks, *self._working)
        await self.leadership.release()
        await self._connections.close()

    async def _terms(self) -> None:
        """One term after the other."""
        while True:
            await self.leadership.leading.wait()
            term = asyncio.create_task(self._term(), name="term")
            try:
                lost = asyncio.create_task(self.leadership.lost.wait(), name="term-lost")
                await asyncio.wait((term, lost), return_when=asyncio.FIRST_COMPLETED)
                lost.cancel()
                if term.done():
                    term.result()  # it ends by a fault only, which ends this replica
            finally:
                # A look or a write that is cut off is made again by whoever leads next.
                await end(term, *self._working)
                self.stale_watch = None
                self._metrics.leading = False
                self._metrics.forget()

    async def _term(self) -> None:
        """From the first full list to the loss of the Lease."""
        self._queue.clear()
        self._reconciler.forget()
        await self._list_until_done()
        self._metrics.leading = True
        for budget in self.world.budgets():
            self._queue.add(budget)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._work())
            group.create_task(self._resync())
            group.create_task(self._listen())
            group.create_task(self._retire_before())
            group.create_task(self._retire_gone())
            group.create_task(self._watch_the_watches())
            group.create_task(self._storewatch.run())

    # ------------------------------------------------------------ lists

    async def _list_until_done(self) -> None:
        pause = 0.5
        while True:
            try:
                await self._list_all()
            except ApiError as exc:
                _log.warning("cluster-not-listed", error=str(exc))
                await asyncio.sleep(pause)
                pause = min(10.0, pause * 2)
            else:
                return

    async def _list_all(self) -> None:
        """Mark and sweep: what a full list does not show is gone."""
        for kind in KINDS:
            listing, heads = Listing(self.world, kind), list[Object]()
            before = set(self.world.queues)
            # One by one: all objects at once would be most of this process' memory.
            async for raw in self._cluster.all_of(kind):
                listing.take(raw)
                meta = raw["metadata"]
                heads.append({"metadata": {n: meta[n] for n in ("uid", "resourceVersion")}})
            self._freshness.listed(kind, heads)
            changed = listing.end()
            if kind is LLMQUEUES:
                self._gone |= before - set(self.world.queues)
            for key in changed:
                self._attend(key)

    async def _resync(self) -> None:
        while True:
            await asyncio.sleep(self._settings.resync_seconds)
            await self._list_until_done()
            self._lookout.forget()  # what a Redis lost in a failover is written again
            await self._retire(None)

    async def _watch_the_watches(self) -> None:
        """What looks stale is looked at once more before it is told."""
        while True:
            await asyncio.sleep(_FRESHNESS_SECONDS)
            if self._freshness.stale():
                await self._list_until_done()
            self.stale_watch = self._freshness.stale()

    # ------------------------------------------------------------ LLMQueues that are gone

    async def _retire_before(self) -> None:
        """What went while no operator looked."""
        pause = _RETIRE_SECONDS
        while not await self._retire(None):
            await asyncio.sleep(pause)
            pause = min(_MOST_RETIRE_SECONDS, pause * 2)

    async def _retire_gone(self) -> None:
        """What goes in this term, at once; where a store is away, later and again."""
        late, pause, again_at = set[str](), _RETIRE_SECONDS, 0.0
        while True:
            await asyncio.sleep(_GAP_SECONDS * 4)
            keys, self._gone = self._gone, set()
            for key in keys:
                self._reconciler.forget_queue(key, self.world.budget_of(key))
                self._attend(key)
            if late and time.monotonic() >= again_at:
                keys |= late
            if not keys:
                continue
            if await self._retire(keys):
                late, pause = late - keys, _RETIRE_SECONDS
                for key in keys:
                    self.world.forget(key)
            else:
                late |= keys
                again_at = time.monotonic() + pause
                pause = min(_MOST_RETIRE_SECONDS, pause * 2)

    async def _retire(self, keys: set[str] | None) -> bool:
        """False where a store could not be asked, or this replica may not write now."""
        try:
            self.leadership.check()
        except NotLeading:
            return False
        done = await retire(self._connections, self.world, watched=self._cluster.watched, keys=keys)
        for key in done.removed:
            # A namesake must be written anew, though its configuration is the same.
            self._reconciler.forget_queue(key, self.world.budget_of(key))
            self._attend(key)
        return done.complete

    # ------------------------------------------------------------ work

    async def _listen(self) -> None:
        """Work that appears in an empty queue is attended to at once."""
        async with asyncio.TaskGroup() as group:
            listening: set[str] = set()
            while True:
                for name in set(self._connections.names()) - listening:
                    listening.add(name)
                    group.create_task(self._listen_to(name))
                await asyncio.sleep(QUIET_SECONDS)

    async def _listen_to(self, connection: str) -> None:
        while True:
            with suppress(LlmqueueError):  # without a connection ticks do
                store = await self._connections.store(connection)
                async for queue in store.wakeups():
                    self._attend(queue)
            await asyncio.sleep(_RECONNECT_SECONDS)

    async def _work(self) -> None:
        while True:
            found = {each: self._reconciler.assembly(each) for each in await self._queue.take()}
            connections: dict[str, dict[str, Assembly]] = {}
            for budget, assembly in found.items():
                connection = assembly.group.connection if assembly.group else ""
                connections.setdefault(connection, {})[budget] = assembly
            for part in connections.values():
                # Side by side: a Redis that is silent keeps nobody else waiting.
                self._spawn(self._look_at(part))
            await asyncio.sleep(_GAP_SECONDS)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._working.add(task)
        task.add_done_callback(self._working.discard)

    async def _look_at(self, found: Mapping[str, Assembly]) -> None:
        """Budgets on one connection."""
        groups = [assembly.group for assembly in found.values() if assembly.group]
        try:
            sights = await self._lookout.look(groups, self._reconciler.horizon)
        except Exception as exc:  # an edge: these budgets would never be looked at again
            if not isinstance(exc, NotLeading):
                _log.exception("look-failed", budgets=len(found))
            for budget in found:
                self._queue.failed(budget)
                self._queue.done(budget, succeeded=False)
            return
        for budget, assembly in found.items():
            self._spawn(self._one(budget, assembly, sights.get(budget)))

    async def _one(self, budget: str, assembly: Assembly, sight: Sight | None) -> None:
        async with self._room:
            started, result = time.monotonic(), "succeeded"
            try:
                pause = await self._reconciler.reconcile(budget, assembly, sight)
            except NotLeading:
                result = "refused"
                self._queue.add(budget, delay=TICK_SECONDS)  # a late renewal is no lost Lease
            except LlmqueueError as exc:
                result = "failed"
                pause = self._queue.failed(budget)
                _log.warning("reconcile-failed", budget=budget, error=str(exc), again_in=pause)
            except Exception:  # an edge: one budget's fault must not stop the others
                result = "failed"
                pause = self._queue.failed(budget)
                _log.exception("reconcile-failed", budget=budget, again_in=pause)
            else:
                if assembly.group or assembly.refused:
                    self._queue.add(budget, delay=pause)
            finally:
                self._metrics.reconciled(result, time.monotonic() - started)
                self._queue.done(budget, succeeded=result == "succeeded")


def _only_status(before: QueueView, after: QueueView) -> bool:
    return (before.uid, before.generation, before.deleting) == (
        after.uid,
        after.generation,
        after.deleting,
    )
