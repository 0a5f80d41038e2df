"""The client for code without an event loop: the asynchronous one, run in one background thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Coroutine, Generator, Iterable
from concurrent.futures import CancelledError
from typing import Any, Literal, Self, TypeVar, Unpack

from llmqueue.batch import BatchView
from llmqueue.client.batches import BatchHandle
from llmqueue.client.client import Client
from llmqueue.client.handle import JobEvent, JobHandle
from llmqueue.client.retrying import DEFAULT_RETRY_SECONDS
from llmqueue.client.spec import Job, JobOptions
from llmqueue.errors import UsageError
from llmqueue.job import JobView
from llmqueue.states import JobState

T = TypeVar("T")


class _Loop:
    """An event loop in a thread of its own, usable from any other thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="llmqueue client", daemon=True
        )
        self._thread.start()

    @property
    def open(self) -> bool:
        return not self._loop.is_closed()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Its result; interrupted (Ctrl-C), the work is cancelled."""
        if not self.open:
            work.close()
            raise UsageError("the client is closed: make a new one")
        if threading.current_thread() is self._thread:
            work.close()
            raise UsageError("this is the client's own thread: use the asynchronous Client here")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except CancelledError:
            raise UsageError("the client was closed while another thread used it") from None
        except BaseException:
            future.cancel()
            raise

    @staticmethod
    async def _end_what_runs() -> None:
        """Threads that wait for it must not wait for ever."""
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def iterate(self, items: AsyncGenerator[T]) -> Generator[T]:
        async def following() -> list[T]:
            # A list: StopAsyncIteration can't be the result of a future.
            try:
                return [await anext(items)]
            except StopAsyncIteration:
                return []

        try:
            while found := self.run(following()):
                yield found[0]
        finally:
            if self.open:
                self.run(items.aclose())

    def close(self) -> None:
        self.run(self._end_what_runs())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()


class SyncClient:
    """`Client` for code without an event loop; usable from any thread, not across a fork.

    `with SyncClient.connect(url) as client: …`, or `close()` at the end. What each method does,
    takes and raises is said at `Client`.
    """

    def __init__(self, url: str, *, retry_seconds: float = DEFAULT_RETRY_SECONDS) -> None:
        self._loop = _Loop()
        try:
            self._client = self._loop.run(self._open(url, retry_seconds))
        except BaseException:
            self._loop.close()
            raise

    @staticmethod
    async def _open(url: str, retry_seconds: float) -> Client:
        return await Client.connect(url, retry_seconds=retry_seconds).__aenter__()

    @classmethod
    def connect(cls, url: str, *, retry_seconds: float = DEFAULT_RETRY_SECONDS) -> Self:
        return cls(url, retry_seconds=retry_seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """May be called twice."""
        if self._loop.open:
            self._loop.run(self._client.close())
            self._loop.close()

    def enqueue(self, queue: str, job: Job, **options: Unpack[JobOptions]) -> SyncJobHandle:
        handle = self._loop.run(self._client.enqueue(queue, job, **options))
        return SyncJobHandle(self._loop, handle)

    def enqueue_many(self, queue: str, jobs: Iterable[Job]) -> list[SyncJobHandle]:
        handles = self._loop.run(self._client.enqueue_many(queue, list(jobs)))
        return [SyncJobHandle(self._loop, handle) for handle in handles]

    def handle(self, job_id: str) -> SyncJobHandle:
        return SyncJobHandle(self._loop, self._client.handle(job_id))

    def new_batch_id(self, queue: str, key: str | None = None) -> str:
        return self._loop.run(self._client.new_batch_id(queue, key))

    def batch_handle(self, batch_id: str) -> SyncBatchHandle:
        return SyncBatchHandle(self._loop, self._client.batch_handle(batch_id))

    def batch(
        self,
        queue: str,
        jobs: Iterable[Job],
        *,
        allowed_failures: int | None = 0,
        then: Job | None = None,
        catch: Job | None = None,
        finally_: Job | None = None,
        name: str = "",
        batch_id: str | None = None,
    ) -> SyncBatchHandle:
        handle = self._loop.run(
            self._client.batch(
                queue,
                list(jobs),
                allowed_failures=allowed_failures,
                then=then,
                catch=catch,
                finally_=finally_,
                name=name,
                batch_id=batch_id,
            )
        )
        return SyncBatchHandle(self._loop, handle)


class SyncJobHandle:
    """`JobHandle` for code without an event loop."""

    __slots__ = ("_handle", "_loop")

    def __init__(self, loop: _Loop, handle: JobHandle) -> None:
        self._loop = loop
        self._handle = handle

    def __repr__(self) -> str:
        return f"SyncJobHandle({self.id!r})"

    @property
    def id(self) -> str:
        return self._handle.id

    @property
    def state(self) -> JobState | None:
        return self._handle.state

    @property
    def duplicate(self) -> bool:
        return self._handle.duplicate

    def view(self) -> JobView:
        return self._loop.run(self._handle.view())

    def cancel(self) -> JobState:
        return self._loop.run(self._handle.cancel())

    def result(
        self,
        timeout_seconds: float | None = None,
        *,
        on_review: Literal["wait", "raise"] = "wait",
    ) -> Any:
        return self._loop.run(self._handle.result(timeout_seconds, on_review=on_review))

    def events(self, after: str | None = None) -> Generator[JobEvent]:
        return self._loop.iterate(self._handle.events(after))


class SyncBatchHandle:
    """`BatchHandle` for code without an event loop."""

    __slots__ = ("_handle", "_loop")

    def __init__(self, loop: _Loop, handle: BatchHandle) -> None:
        self._loop = loop
        self._handle = handle

    def __repr__(self) -> str:
        return f"SyncBatchHandle({self.id!r})"

    @property
    def id(self) -> str:
        return self._handle.id

    def progress(self) -> BatchView:
        return self._loop.run(self._handle.progress())

    def wait(self, timeout_seconds: float | None = None) -> BatchView:
        return self._loop.run(self._handle.wait(timeout_seconds))

    def job_ids(self) -> Generator[str]:
        return self._loop.iterate(self._handle.job_ids())

    def results(self) -> Generator[tuple[str, JobView]]:
        return self._loop.iterate(self._handle.results())

    def cancel(self) -> BatchView:
        return self._loop.run(self._handle.cancel())
