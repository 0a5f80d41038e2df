"""The producers' client: enqueue, wait, watch, cancel."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Self, Unpack

from llmqueue.batch import Follower, NewBatch
from llmqueue.client.admission import chunks, new_batch_job, new_job, queue_id
from llmqueue.client.batches import BatchHandle
from llmqueue.client.connection import Connection
from llmqueue.client.handle import JobHandle
from llmqueue.client.retrying import DEFAULT_RETRY_SECONDS
from llmqueue.client.spec import Job, JobOptions, spec_of
from llmqueue.config import RegistryEntry
from llmqueue.errors import (
    InvalidJob,
    LlmqueueError,
    PartlyEnqueued,
    StoreError,
    StoreUnavailable,
    UnknownQueue,
    UsageError,
)
from llmqueue.job import Enqueued, NewJob
from llmqueue.store import RedisStore, keys
from llmqueue.store.port import IntakeStore

OnStored = Callable[[Sequence[JobHandle]], None]
"""Told of each chunk as soon as it is stored."""


class Client:
    """Enqueues jobs into queues that the store knows, and follows them.

    Made by `Client.connect(url)`, or on a store that somebody else closes; for one event loop:

        async with Client.connect("redis://…") as client:
            job = await client.enqueue("summaries", {"model": …, "messages": […]})
            answer = await job.result()

    While the store is unavailable each call is repeated for `retry_seconds`: ids are made before
    the first try, so no job is stored twice.
    """

    def __init__(self, store: IntakeStore, *, retry_seconds: float = DEFAULT_RETRY_SECONDS) -> None:
        self._store = store
        self._own: RedisStore | None = None
        self._connection = Connection(store, retry_seconds=retry_seconds)

    @classmethod
    def connect(cls, url: str, *, retry_seconds: float = DEFAULT_RETRY_SECONDS) -> Self:
        """A client with a store of its own; `async with` checks and closes it.

        Raises UsageError (not a URL, or retry_seconds out of its bounds).
        """
        store = RedisStore(url)
        client = cls(store, retry_seconds=retry_seconds)
        client._own = store
        return client

    async def __aenter__(self) -> Self:
        if self._own is not None:
            try:
                await self._connection.ask(self._own.check)
            except BaseException:
                await self.close()
                raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop waiting; close the store if it is the client's own."""
        await self._connection.close()
        if self._own is not None:
            await self._own.close()

    async def entry(self, queue: str) -> RegistryEntry:
        """A queue's registry entry. Raises UnknownQueue, naming those that exist."""
        try:
            return await self._connection.ask(lambda: self._store.entry(queue_id(queue)))
        except UnknownQueue:
            registry = await self._connection.ask(self._store.registry)
            known = ", ".join(sorted(registry)) or "none"
            raise UnknownQueue(f"no queue {queue_id(queue)!r}; known queues: {known}") from None

    async def enqueue(self, queue: str, job: Job, **options: Unpack[JobOptions]) -> JobHandle:
        """Enqueue one job: a payload, a `HandlerCall`, or a `JobSpec`.

        Raises InvalidJob, UnknownQueue, QueueFull; StoreUnavailable where the outage lasts longer:
        whether the job is stored is not known then. With an idempotency key it may be repeated.
        """
        spec = spec_of(job, options)
        entry = await self.entry(queue)
        (handle,) = await self._store_chunk([new_job(entry, spec)])
        return handle

    async def enqueue_many(
        self, queue: str, jobs: Iterable[Job], *, on_stored: OnStored | None = None
    ) -> list[JobHandle]:
        """Enqueue jobs in chunks; all are validated before the first is stored.

        Raises InvalidJob, UnknownQueue; PartlyEnqueued once some may be stored.
        """
        entry = await self.entry(queue)
        return await self.store_jobs(
            [new_job(entry, spec_of(job)) for job in jobs], on_stored=on_stored
        )

    async def store_jobs(
        self, jobs: Sequence[NewJob], *, on_stored: OnStored | None = None
    ) -> list[JobHandle]:
        """Store jobs that `new_job` made. Raises as `enqueue_many` does."""
        done: list[JobHandle] = []
        for chunk in chunks(jobs):
            try:
                stored = await self._store_chunk(chunk)
            except LlmqueueError as exc:
                unknown = chunk if isinstance(exc, StoreUnavailable) else ()
                if not done and not unknown:
                    raise
                raise _partly(exc, done, unknown, total=len(jobs), batch=chunk[0].batch) from exc
            done += stored
            if on_stored is not None:
                on_stored(stored)
        return done

    async def _store_chunk(self, chunk: Sequence[NewJob]) -> list[JobHandle]:
        answers = await self._connection.ask(lambda: self._store.enqueue(chunk))
        return [self._handle(job, answer) for job, answer in zip(chunk, answers, strict=True)]

    def _handle(self, job: NewJob, answer: Enqueued) -> JobHandle:
        # Without a key nobody else makes this id: what was there came by an earlier try of ours.
        duplicate = answer.duplicate and job.fingerprint is not None
        return JobHandle(self._connection, answer.id, state=answer.state, duplicate=duplicate)

    def handle(self, job_id: str) -> JobHandle:
        """A handle of a job whose id came from elsewhere."""
        return JobHandle(self._connection, job_id)

    # ------------------------------------------------------------ batches

    async def new_batch_id(self, queue: str, key: str | None = None) -> str:
        """An id for `batch`; the same `key` of a queue always gives the same one, so that a job of
        yours that is run again goes on with its batch."""
        entry = await self.entry(queue)
        if key is None:
            return keys.new_batch_id(entry.code)
        return keys.keyed_batch_id(entry.code, queue=entry.config.queue, key=key)

    def batch_handle(self, batch_id: str) -> BatchHandle:
        """A handle of a batch whose id came from elsewhere."""
        return BatchHandle(self._connection, batch_id)

    async def batch(
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
    ) -> BatchHandle:
        """Enqueue jobs that are counted together, and jobs that follow their end.

        `catch` is enqueued when more jobs have failed (ended dead, cancelled or expired) than
        allowed (None = any number may), `then` when all have ended and no more failed than that,
        `finally_` when all have ended: each once, by the step that ends the job it follows on.

        A producer that dies before all jobs are stored leaves an open batch, which does not end.
        Running the same again with the same `batch_id` goes on with it: jobs are known by their
        idempotency keys, those without one by their place.

        Raises InvalidJob, UnknownQueue, BatchConflict; PartlyEnqueued, which names the batch.
        """
        batch = await self.new_batch(
            queue,
            allowed_failures=allowed_failures,
            then=then,
            catch=catch,
            finally_=finally_,
            name=name,
            batch_id=batch_id,
        )
        entry = await self.entry(queue)
        new = [
            new_batch_job(entry, spec_of(job), batch=batch.id, place=place)
            for place, job in enumerate(jobs)
        ]
        return await self.store_batch(batch, new)

    async def new_batch(
        self,
        queue: str,
        *,
        allowed_failures: int | None = 0,
        then: Job | None = None,
        catch: Job | None = None,
        finally_: Job | None = None,
        name: str = "",
        batch_id: str | None = None,
    ) -> NewBatch:
        """A validated batch that is not stored yet. Raises InvalidJob, UnknownQueue, UsageError."""
        entry = await self.entry(queue)
        if allowed_failures is not None and allowed_failures < 0:
            raise UsageError(f"allowed_failures: {allowed_failures} is below 0; None allows any")
        return NewBatch(
            id=_checked(batch_id, entry) or keys.new_batch_id(entry.code),
            queue=entry.config.queue,
            name=name,
            allowed_failures=allowed_failures,
            followers=_followers(entry, {"then": then, "catch": catch, "finally": finally_}),
        )

    async def store_batch(
        self, batch: NewBatch, jobs: Sequence[NewJob], *, on_stored: OnStored | None = None
    ) -> BatchHandle:
        """Store a batch with jobs that `new_batch_job` made. Raises as `batch` does."""
        await self._connection.ask(lambda: self._store.open_batch(batch))
        done = await self.store_jobs(jobs, on_stored=on_stored)
        try:
            await self._connection.ask(lambda: self._store.seal_batch(batch.id))
        except StoreError as exc:
            raise _partly(exc, done, (), total=len(jobs), batch=batch.id) from exc
        return self.batch_handle(batch.id)


def _checked(batch_id: str | None, entry: RegistryEntry) -> str | None:
    if batch_id is not None and not batch_id.startswith(f"{entry.code}-"):
        raise UsageError(
            f"batch_id: {batch_id!r} is not one of queue {entry.config.queue!r}:"
            " make it by client.new_batch_id(queue)"
        )
    return batch_id


def _followers(entry: RegistryEntry, jobs: dict[Follower, Job | None]) -> dict[Follower, NewJob]:
    found: dict[Follower, NewJob] = {}
    for kind, job in jobs.items():
        if job is None:
            continue
        try:
            spec = spec_of(job)
            if spec.idempotency_key is not None:
                raise InvalidJob("idempotency_key: it is enqueued once anyway; leave it out")
            found[kind] = new_job(entry, spec)
        except InvalidJob as exc:
            raise type(exc)(f"{kind}: {exc}") from None
    return found


def _partly(
    exc: LlmqueueError,
    done: Sequence[JobHandle],
    unknown: Sequence[NewJob],
    *,
    total: int,
    batch: str,
) -> PartlyEnqueued:
    """What to tell where some is stored, or may be, and not all."""
    words = f"{exc}; {len(done)} of {total} jobs were stored"
    if unknown:
        words += f", of {len(unknown)} more it is not known"
    if batch:
        words += f"; batch {batch} is open, run it again with this batch_id to go on"
    return PartlyEnqueued(
        words,
        stored=tuple(handle.id for handle in done),
        unknown=tuple(job.id for job in unknown),
        total=total,
    )
