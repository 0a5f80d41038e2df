"""The course of the demo: a burst at full pace, 15 s of injected failures, the rest, and home."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from llmqueue.client import Client
from llmqueue.spec import LLMQueue, queue_id
from llmqueue.states import JobState, ProviderType
from llmqueue_cli.exits import Exit
from llmqueue_cli.local.demo.material import ANTHROPIC_FILE, OPENAI_FILE, example, jobs
from llmqueue_cli.local.demo.provider import Counts, DemoProvider
from llmqueue_cli.local.demo.recorder import Recorder
from llmqueue_cli.local.demo.report import (
    WINDOW_SECONDS,
    Figures,
    ProviderCounts,
    Steady,
    is_good,
    sentences,
    summary,
)
from llmqueue_cli.local.demo.view import Row, View, output_for, view
from llmqueue_cli.local.up import Up, UpOptions, serving
from llmqueue_cli.rendering import print_json

INJECTED_SECONDS = 15.0
_RETRY_AFTER_SECONDS = 1
_LOOK_SECONDS = 0.25
_FIRST_CALL_SECONDS = 30.0
_REST_SECONDS = 35.0
"""After the injected failures: by far enough for the jobs that are left."""
_HOME_SECONDS = 20.0
_BUSY = (JobState.READY, JobState.DELAYED, JobState.LEASED, JobState.SENT)


@dataclass(frozen=True, slots=True)
class Part:
    """One queue's part: its manifest, its provider's limit a minute, how many jobs, and what is
    injected. Enough jobs to be limited for a window, and some for after the failures."""

    kind: ProviderType
    file: str
    queue: str
    limit: int
    jobs: int
    fault: str


PARTS = (
    Part(ProviderType.OPENAI, OPENAI_FILE, "default/demo-openai", 240, 264, "rate429"),
    Part(ProviderType.ANTHROPIC, ANTHROPIC_FILE, "default/demo-anthropic", 180, 197, "529"),
)


@dataclass
class Stage:
    """The running demo."""

    run: Up
    providers: dict[str, DemoProvider]
    recorder: Recorder
    view: View
    stopping: asyncio.Event
    act: str = "starting"
    counts: dict[str, Counts] = field(default_factory=dict[str, Counts])
    submitted: int = 0
    _shown: float = 0.0

    async def perform(self) -> None:
        """All acts; returns early where the user stops it."""
        self.act = "a burst of jobs arrives; workers start and keep exactly to the limits"
        client = Client(self.run.store)
        for part in PARTS:
            specs = list(jobs(part.kind, part.jobs))
            self.submitted += len(await client.enqueue_many(part.queue, specs))
        await self._until(self._all_called, seconds=_FIRST_CALL_SECONDS)
        await self._until(self._window_over, seconds=WINDOW_SECONDS + 5)
        self.act = "for 15 s the providers answer 429 and 529: the queues hold back, jobs wait"
        for part in PARTS:
            await self.providers[part.queue].misbehave(
                part.fault, seconds=INJECTED_SECONDS, retry_after_seconds=_RETRY_AFTER_SECONDS
            )
        await self._until(lambda: False, seconds=INJECTED_SECONDS)
        self.act = "the providers are well again: slowly back to full pace, then the rest"
        await self._until(self._all_done, seconds=_REST_SECONDS)
        self.act = "nothing is left to do: workers finish and leave"
        await self._until(self._all_home, seconds=_HOME_SECONDS)

    async def _until(self, true: Callable[[], bool], *, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not true() and not self.stopping.is_set() and time.monotonic() < end:
            await self._look()

    async def _look(self) -> None:
        for queue, provider in self.providers.items():
            self.counts[queue] = await provider.counts()
        pools = {q: p.alive for c in self.run.controllers.values() for q, p in c.pools.items()}
        self.recorder.count(pools)
        self.view.show(self.act, list(self._rows()), self.recorder.latest)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_SECONDS):
                await self.stopping.wait()

    def _rows(self) -> Iterator[Row]:
        for part in PARTS:
            controller = self.run.controllers[part.queue]
            plan = controller.plans.get(part.queue)
            states = self.states(part.queue)
            yield Row(
                queue=part.queue.partition("/")[2],
                waiting=states.get("ready", 0) + states.get("delayed", 0),
                in_flight=states.get("leased", 0) + states.get("sent", 0),
                done=states.get("succeeded", 0),
                submitted=part.jobs,
                workers=controller.pools[part.queue].alive,
                wanted=plan.target if plan else 0,
                recent=self.counts[part.queue].recent,
                limit=part.limit,
                bound_by=str(plan.bound_by) if plan else "–",
            )

    def states(self, queue: str) -> dict[str, int]:
        """Jobs by state, as the planner saw them last."""
        snapshot = self.run.controllers[queue].snapshot
        rows = snapshot.queues if snapshot else ()
        return {str(state): n for row in rows for state, n in row.states.items()}

    def _all_called(self) -> bool:
        return len(self._firsts()) == len(PARTS)

    def _window_over(self) -> bool:
        """Every provider has seen a full window since its first call."""
        return all(time.time() > first + WINDOW_SECONDS for first in self._firsts())

    def _firsts(self) -> list[float]:
        """When the providers saw their first calls; those that saw none are left out."""
        firsts = (counts.first_start for counts in self.counts.values())
        return [first for first in firsts if first is not None]

    def _all_done(self) -> bool:
        return not any(self.states(p.queue).get(s, 1) for p in PARTS for s in map(str, _BUSY))

    def _all_home(self) -> bool:
        return not any(p.alive for c in self.run.controllers.values() for p in c.pools.values())


async def _figures(stage: Stage, seconds: float) -> Figures:
    """Everything measured, read from the store and the providers after the workers have gone."""
    states: dict[str, int] = {}
    useful = 0.0
    counted: list[ProviderCounts] = []
    steady: list[Steady] = []
    for part in PARTS:
        snapshot = await stage.run.store.snapshot(part.queue, horizon_seconds=0)
        for row in snapshot.queues:
            for state, count in row.states.items():
                states[str(state)] = states.get(str(state), 0) + count
        useful += stage.run.controllers[part.queue].busy_worker_seconds(snapshot)
        counts = await stage.providers[part.queue].counts()
        counted.append(
            ProviderCounts(
                name=f"The provider of {part.queue.partition('/')[2]}",
                limit=part.limit,
                calls=counts.calls,
                answered_429=counts.answered_429,
                injected_429=counts.injected_429,
                injected_529=counts.injected_529,
                worst_60s=counts.worst_60s,
                billed_twice=counts.billed_twice,
            )
        )
        started = await stage.providers[part.queue].started_within(WINDOW_SECONDS)
        steady.append(Steady(started, part.limit))
    recorder = stage.recorder
    return Figures(
        submitted=stage.submitted,
        states=states,
        providers=counted,
        steady=steady,
        targets=recorder.targets,
        workers=recorder.lives,
        peak=recorder.peak,
        useful_seconds=useful,
        seconds=seconds,
    )


@contextlib.asynccontextmanager
async def _providers() -> AsyncGenerator[dict[str, DemoProvider]]:
    """Both simulated providers, as processes of their own."""
    found = {part.queue: DemoProvider(part.kind, part.limit) for part in PARTS}
    try:
        await asyncio.gather(*(provider.start() for provider in found.values()))
        yield found
    finally:
        await asyncio.gather(*(provider.stop() for provider in found.values()))


@contextlib.contextmanager
def _stopped_by_signals(stopping: asyncio.Event) -> Generator[None]:
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        loop.add_signal_handler(number, stopping.set)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


async def _play(folder: Path, screen: View, stopping: asyncio.Event) -> Figures:
    """The whole course on a data folder of its own."""
    began, recorder = time.monotonic(), Recorder()
    keys = folder / "keys"
    keys.write_text("demo=not-a-real-key\n")
    async with _providers() as providers:
        urls = {queue: provider.base_url for queue, provider in providers.items()}

        def to_simulation(queue: LLMQueue) -> LLMQueue:
            provider = queue.spec.provider.model_copy(update={"base_url": urls[queue_id(queue)]})
            spec = queue.spec.model_copy(update={"provider": provider})
            return queue.model_copy(update={"spec": spec})

        options = UpOptions(
            files=tuple(example(part.file) for part in PARTS),
            data_dir=folder / "data",
            credentials_file=keys,
            worker_log=folder / "workers.log",
        )
        async with serving(options, recorder, amend=to_simulation) as run:
            run.on_worker_end = recorder.worker_ended
            stage = Stage(run, providers, recorder, screen, stopping)
            loop = asyncio.create_task(run.run())
            try:
                await stage.perform()
            finally:
                run.stopping.set()
                run.wake.set()
                await loop
            return await _figures(stage, time.monotonic() - began)


async def demo(*, as_json: bool) -> Exit:
    """Run the demo. OK where every promise held, INTERRUPTED where the user stopped it."""
    output, stopping = output_for(as_json=as_json), asyncio.Event()
    screen = view(output)
    with tempfile.TemporaryDirectory(prefix="llmqueue-demo-") as folder:
        try:
            with _stopped_by_signals(stopping):
                figures = await _play(Path(folder), screen, stopping)
        finally:
            screen.close()
    if stopping.is_set():
        print("stopped; everything has ended", file=output)
        return Exit.INTERRUPTED
    print("\nWhat was shown", file=output)
    for sentence in sentences(figures):
        print(f"- {sentence}", file=output)
    if as_json:
        print_json(summary(figures))
    return Exit.OK if is_good(figures) else Exit.FAILED
