"""`llmqueue up`: LLMQueues on one machine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from llmqueue.endings import end
from llmqueue.errors import LlmqueueError, StoreError, StoreUnavailable
from llmqueue.spec import LLMQueue
from llmqueue.store import RedisStore, connect
from llmqueue_cli.datadir import DataDir
from llmqueue_cli.exits import Exit, sentence
from llmqueue_cli.local.control import Controller
from llmqueue_cli.local.credentials import Credentials
from llmqueue_cli.local.deployment import LocalGroup
from llmqueue_cli.local.embedded import EmbeddedValkey, FolderLock
from llmqueue_cli.local.journal import Journal
from llmqueue_cli.local.moves import refuse_moves
from llmqueue_cli.local.processes import WorkerEnd, WorkerPool
from llmqueue_cli.local.resources import Sources

TICK_SECONDS = 1.0
_WAKE_GAP_SECONDS = 0.05
"""A burst of wake-ups is one: least time between two ticks."""
_IDLE_SECONDS = 2.0
_FIRST_JOB_SECONDS = 10.0
_RECONNECT_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class UpOptions:
    """What the command line said. `until_idle`: end when no job is left to do."""

    files: tuple[Path, ...]
    data_dir: Path
    redis_url: str | None = None
    until_idle: bool = False
    credentials_file: Path | None = None
    json_logs: bool = False
    worker_log: Path | None = None


@dataclass
class Up:
    """One run: its store, its controllers, and what makes it tick."""

    store: RedisStore
    sources: Sources
    journal: Journal
    folder: DataDir
    until_idle: bool = False
    embedded: EmbeddedValkey | None = None
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    reload: asyncio.Event = field(default_factory=asyncio.Event)
    controllers: dict[str, Controller] = field(default_factory=dict[str, Controller])
    on_worker_end: Callable[[WorkerEnd], None] = lambda end: None
    started: float = field(default_factory=time.monotonic)
    _idle_since: float | None = None
    _leaving: list[asyncio.Task[None]] = field(default_factory=list[asyncio.Task[None]])

    def worker_ended(self, end: WorkerEnd) -> None:
        self.on_worker_end(end)
        self.wake.set()

    # ------------------------------------------------------------ resources

    def adopt(self, groups: Sequence[LocalGroup]) -> None:
        """Run these groups from now on. Queues that are gone take no more jobs, their workers
        drain, their jobs are kept."""
        gone: dict[str, WorkerPool] = {}
        for budget in set(self.controllers) - {group.budget.budget for group in groups}:
            gone |= self.controllers.pop(budget).pools
        for group in groups:
            name = group.budget.budget
            controller = self.controllers.get(name)
            if controller is None:
                self.controllers[name] = Controller(
                    self.store, group, self.journal, on_exit=self.worker_ended
                )
            else:
                gone |= controller.adopt(group)
        served = {item.queue for group in groups for item in group.queues}
        for queue, pool in gone.items():
            end = pool.drain() if queue in served else self._remove(queue, pool)
            self._leaving.append(asyncio.create_task(end))

    async def _remove(self, queue: str, pool: WorkerPool) -> None:
        self.journal.say("queue-removed", "no longer in the manifests", subject=queue)
        with contextlib.suppress(StoreError):
            await self.store.remove_queue(queue)
        await pool.drain()

    async def reread(self) -> None:
        """Changed files: new limits at once; a file with a mistake changes nothing."""
        try:
            groups = await asyncio.to_thread(self.sources.load)
            await refuse_moves(self.store, groups)
        except LlmqueueError as exc:
            self.journal.say("manifest-refused", f"kept the last good manifests: {sentence(exc)}")
            return
        self.adopt(groups)
        self.journal.say("manifests-read", "the manifests were read again")

    # ------------------------------------------------------------ the loop

    async def run(self) -> None:
        """Tick until told to stop, or until idle where that was asked for; then drain."""
        listener = asyncio.create_task(self._listen())
        try:
            while not self.stopping.is_set():
                await self._once()
                if self.until_idle and self._is_idle():
                    self.journal.say("idle", "no job is left to do")
                    break
                await self._pause()
        finally:
            await end(listener)
            await self._drain()

    async def _once(self) -> None:
        await self._revive()
        if self.reload.is_set() or await asyncio.to_thread(self.sources.changed):
            self.reload.clear()
            await self.reread()
        await asyncio.gather(*(controller.tick() for controller in self.controllers.values()))

    async def _revive(self) -> None:
        """An embedded server that has died is started again."""
        try:
            if self.embedded is not None and await self.embedded.ensure():
                self.journal.say("valkey-restarted", "the embedded Valkey had died and runs again")
        except StoreUnavailable as exc:
            self.journal.say("valkey-failed", str(exc))

    async def _pause(self) -> None:
        """A tick's time, less where work appears, a worker ends or a signal comes."""
        await asyncio.sleep(_WAKE_GAP_SECONDS)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TICK_SECONDS - _WAKE_GAP_SECONDS):
                await self.wake.wait()
        self.wake.clear()

    async def _listen(self) -> None:
        """Work that appears in an empty queue wakes the loop; without a connection ticks do."""
        while True:
            with contextlib.suppress(StoreError):
                async for _ in self.store.wakeups():
                    self.wake.set()
            await asyncio.sleep(_RECONNECT_SECONDS)

    def _is_idle(self) -> bool:
        """Idle for a moment, and the first job had its time to come."""
        now = time.monotonic()
        if not all(controller.idle() for controller in self.controllers.values()):
            self._idle_since = None
            return False
        if self._idle_since is None:
            self._idle_since = now
        ever = any(controller.ever_enqueued() for controller in self.controllers.values())
        waited = now - self.started >= _FIRST_JOB_SECONDS
        return now - self._idle_since >= _IDLE_SECONDS and (ever or waited)

    async def _drain(self) -> None:
        pools = [p for c in self.controllers.values() for p in c.pools.values()]
        busy = sum(pool.alive for pool in pools)
        if busy:
            self.journal.say("draining", f"{busy} workers finish their calls", workers=busy)
        keeping = asyncio.create_task(self._keep_store())
        try:
            await asyncio.gather(*(pool.drain() for pool in pools), *self._leaving)
            with contextlib.suppress(StoreError):
                for controller in self.controllers.values():
                    await controller.write_stopped()
        finally:
            await end(keeping)
            for pool in pools:
                pool.kill()

    async def _keep_store(self) -> None:
        """Workers that drain still need their store."""
        while True:
            await self._revive()
            await asyncio.sleep(TICK_SECONDS)


@contextlib.contextmanager
def _signals(handlers: dict[signal.Signals, Callable[[], object]]) -> Generator[None]:
    loop = asyncio.get_running_loop()
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)
    try:
        yield
    finally:
        for number in handlers:
            loop.remove_signal_handler(number)


@contextlib.contextmanager
def _folder(options: UpOptions) -> Generator[DataDir]:
    """The locked data folder. With a Redis of the user's own nothing is kept, so that several
    `up` may run: a temporary folder holds the keys."""
    private = options.redis_url is not None
    path = Path(tempfile.mkdtemp(prefix="llmqueue-")) if private else options.data_dir
    folder = DataDir(path)
    lock = FolderLock(folder)
    try:
        yield folder
    finally:
        folder.note.unlink(missing_ok=True)
        for key in folder.run.glob("key-*"):
            key.unlink(missing_ok=True)
        lock.release()
        if private:
            shutil.rmtree(path, ignore_errors=True)


@contextlib.asynccontextmanager
async def serving(
    options: UpOptions,
    journal: Journal,
    *,
    amend: Callable[[LLMQueue], LLMQueue] = lambda queue: queue,
) -> AsyncGenerator[Up]:
    """Everything that `Up.run` needs, taken down again at the end.

    Raises UsageError (manifests, keys, folder in use), StoreError.
    """
    with _folder(options) as folder:
        embedded = None if options.redis_url else EmbeddedValkey(folder)
        url = embedded.url if embedded else options.redis_url or ""
        sources = Sources(
            files=options.files,
            credentials=Credentials(options.credentials_file),
            redis_url=url,
            run_folder=folder.run,
            journal=journal,
            log_format="json" if options.json_logs else "console",
            amend=amend,
            worker_log=options.worker_log,
        )
        groups = sources.load()
        try:
            if embedded is not None:
                await embedded.start()
            store = await connect(url)
            try:
                run = Up(store, sources, journal, folder, options.until_idle, embedded)
                await _configure(run, groups, url)
                yield run
            finally:
                await store.close()
        finally:
            if embedded is not None:
                await embedded.stop()


async def _configure(run: Up, groups: Sequence[LocalGroup], url: str) -> None:
    await refuse_moves(run.store, groups)
    run.adopt(groups)
    for controller in run.controllers.values():
        await controller.configure()
    for warning in await run.store.check():  # with the queues: a Strict one asks for more
        run.journal.say("store-warning", warning)
    note = {"pid": os.getpid(), "redis_url": url, "started_at": time.time()}
    if run.embedded is not None:
        note["socket"] = run.embedded.socket
    run.folder.write_note(**note)


async def up(options: UpOptions) -> Exit:
    """Run until SIGTERM, SIGINT or idle; returns OK after a clean drain.

    Raises as `serving` does, at the start only: later an outage is sat out.
    """
    journal = Journal(as_json=options.json_logs)
    stopping, wake, reload = asyncio.Event(), asyncio.Event(), asyncio.Event()

    def stop() -> None:
        if stopping.is_set():
            journal.say("still-draining", "still waiting for running calls to finish")
        stopping.set()
        wake.set()

    def read_again() -> None:
        reload.set()
        wake.set()

    # Before the first process is started: from then on an end is always an orderly one.
    with _signals({signal.SIGTERM: stop, signal.SIGINT: stop, signal.SIGHUP: read_again}):
        async with serving(options, journal) as run:
            run.stopping, run.wake, run.reload = stopping, wake, reload
            queues = ", ".join(q for c in run.controllers.values() for q in c.pools)
            where = "the Redis you named" if options.redis_url else f"the folder {options.data_dir}"
            journal.say("started", f"serving {queues} from {where}", pid=os.getpid())
            await run.run()
    journal.say("stopped", "everything has ended in order")
    return Exit.OK
