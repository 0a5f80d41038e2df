"""A job that was enqueued, as its producer goes on with it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from llmqueue.client.connection import Connection
from llmqueue.client.watching import position
from llmqueue.errors import (
    JobCancelled,
    JobExpired,
    JobFailed,
    JobInReview,
    JobNotSucceeded,
    UnknownJob,
)
from llmqueue.job import JobView, Progress
from llmqueue.states import JobState
from llmqueue.store.port import News

_ERRORS: dict[JobState, type[JobNotSucceeded]] = {
    JobState.DEAD: JobFailed,
    JobState.CANCELLED: JobCancelled,
    JobState.EXPIRED: JobExpired,
    JobState.REVIEW: JobInReview,
}


@dataclass(frozen=True, slots=True)
class JobEvent:
    """A job came into a state, or reported progress while it was in one.

    Attributes:
        id: where it stands among all events; give it to `events(after=…)` to go on from there.
        at: Unix seconds.
    """

    id: str
    job_id: str
    state: JobState
    progress: Progress | None
    at: float


def _unknown(job_id: str) -> UnknownJob:
    return UnknownJob(f"no job {job_id!r}, or its retention is over")


def _result(view: JobView) -> Any:
    """The result of a job that has ended, or what it means to have none."""
    if view.state is JobState.SUCCEEDED:
        try:
            return json.loads(view.result or b"null")
        except ValueError:
            return view.result
    error = view.error or {}
    why = error.get("message") or error.get("reason") or "no reason is known"
    raise _ERRORS[view.state](f"job {view.id} is {view.state}: {why}", view=view)


class JobHandle:
    """One job, by its id.

    Attributes:
        id: its id; `client.handle(id)` gives a handle again, anywhere.
        state: its state when it was enqueued; None for a handle that was made from an id.
        duplicate: its idempotency key found a job that was there already. After an outage in the
            middle of enqueueing that job may be this one.
    """

    __slots__ = ("_connection", "duplicate", "id", "state")

    def __init__(
        self,
        connection: Connection,
        job_id: str,
        *,
        state: JobState | None = None,
        duplicate: bool = False,
    ) -> None:
        self._connection = connection
        self.id = job_id
        self.state = state
        self.duplicate = duplicate

    def __repr__(self) -> str:
        return f"JobHandle({self.id!r})"

    async def view(self) -> JobView:
        """All that is known of it now. Raises UnknownJob, StoreUnavailable."""
        return await self._connection.ask(lambda: self._connection.store.job(self.id))

    async def cancel(self) -> JobState:
        """Cancel it; returns its state after that: `sent` where the worker was told to stop a
        running call. Raises UnknownJob, StoreUnavailable."""
        return await self._connection.ask(lambda: self._connection.store.cancel(self.id))

    async def result(
        self,
        timeout_seconds: float | None = None,
        *,
        on_review: Literal["wait", "raise"] = "wait",
    ) -> Any:
        """Wait for its end; returns the result as JSON value (bytes where it is not JSON).

        A job in review may wait for a person for days: `on_review="raise"` ends the waiting.
        Outages are sat out; how long in all is `timeout_seconds`.

        Raises JobFailed, JobCancelled, JobExpired, JobInReview (each with the job's `view`),
        TimeoutError (the job goes on), UnknownJob.
        """
        async with asyncio.timeout(timeout_seconds):
            return _result(await self._ended(stop_at_review=on_review == "raise"))

    async def _ended(self, *, stop_at_review: bool) -> JobView:
        async with self._connection.watch(self.id) as watch:
            while True:
                news = await watch.next()
                if news is None:
                    raise _unknown(self.id)
                if news.state.terminal or (stop_at_review and news.state is JobState.REVIEW):
                    view = await self.view()
                    # A review may have been decided between the news and the look.
                    if view.state.terminal or view.state is news.state:
                        return view

    async def events(self, after: str | None = None) -> AsyncGenerator[JobEvent]:
        """What happens to it, its present state first, until it has ended.

        `after`: the id of an event that was seen; what came after it and is still kept comes first.
        An event may be missed in an outage or a flood, the end never is. A lease alone is no event.

        Raises UnknownJob.
        """
        seen = _Seen(after or "")
        async with self._connection.watch(self.id) as watch:
            for kept in await self._kept(after) if after else ():
                if event := seen.event(kept):
                    yield event
                if kept.state.terminal:
                    return
            while (news := await watch.next()) is not None:
                if event := seen.event(news):
                    yield event
                if news.state.terminal:
                    return
        raise _unknown(self.id)

    async def _kept(self, after: str) -> list[News]:
        """News of this job after an id that the stream still has."""
        ask, store = self._connection.ask, self._connection.store
        budget = await ask(lambda: store.budget_of(self.id))
        found: list[News] = []
        while True:
            news, last = await ask(partial(store.news, budget, after, wait_seconds=0))
            found += [each for each in news if each.subject == self.id]
            if last == after:
                return found
            after = last


class _Seen:
    """What was told of a job so far: the same again is no event, nor is what was read before."""

    def __init__(self, after: str) -> None:
        self._position = position(after)
        self._state: JobState | None = None
        self._progress: Progress | None = None

    def event(self, news: News) -> JobEvent | None:
        """An event, if the news says something new."""
        at, progress = position(news.id), news.progress or self._progress
        if at < self._position or (news.state, progress) == (self._state, self._progress):
            return None
        self._position, self._state, self._progress = at, news.state, progress
        return JobEvent(news.id, news.subject, news.state, progress, news.at)
