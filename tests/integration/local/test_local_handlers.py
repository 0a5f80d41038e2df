"""The example application under `llmqueue up`, against the simulated provider."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from llmqueue.errors import UnknownJob
from llmqueue.job import Charge, NewJob
from llmqueue.states import JobState
from llmqueue.store import keys
from llmqueue_cli.simulate.distribution import Constant
from llmqueue_cli.simulate.limits import Limits
from llmqueue_cli.simulate.options import ProviderOptions
from llmqueue_cli.simulate.provider import FakeProvider
from support.localup import LocalUp
from support.workerprocess import eventually

pytestmark = pytest.mark.timeout(90)

EXAMPLE = Path(__file__).parents[3] / "examples/handlers"
QUEUE = "default/documents"


class Application(LocalUp):
    """The example's folder as a user has it, with the provider's address in its queue."""

    def __init__(self, folder: Path, fake: FakeProvider) -> None:
        super().__init__(folder)
        self.fake = fake
        shutil.copytree(EXAMPLE, folder, dirs_exist_ok=True)
        queue = yaml.safe_load(self.manifest.read_text())
        queue["spec"]["provider"] = {"type": "openai-compatible", "baseURL": f"{fake.url}/v1"}
        queue["spec"]["scaling"] = {"slotsPerWorker": 2, "maxReplicas": 1}
        self.manifest.write_text(yaml.safe_dump(queue))

    async def enqueue(self, **arguments: object) -> str:
        async with self.store() as store:
            entry = (await store.registry())[QUEUE]
            job = NewJob(
                keys.new_job_id(entry.code),
                QUEUE,
                json.dumps(arguments).encode(),
                Charge(600, 200),
                handler="summarise",
            )
            return (await store.enqueue([job]))[0].id

    async def ended(self, job: str, state: JobState) -> None:
        async def reached() -> bool:
            with suppress(UnknownJob):  # a failure job that is not there yet
                async with self.store() as store:
                    return (await store.job(job)).state is state
            return False

        await eventually(reached, what=f"{job} {state}")


@pytest.fixture
async def application(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Application]:
    options = ProviderOptions(limits=Limits(requests=6000), latency=Constant(0.1))
    async with FakeProvider(options) as fake, Application(tmp_path, fake) as application:
        monkeypatch.chdir(tmp_path)
        yield application


async def test_the_example_works(application: Application) -> None:
    """Modules are found in the directory that `up` is started in."""
    up = await application.up()
    job = await application.enqueue(document="word " * 1000, language="fr")
    await application.ended(job, JobState.SUCCEEDED)
    async with application.store() as store:
        view = await store.job(job)
    result = json.loads(view.result or b"null")
    assert (result["parts"], bool(result["summary"])) == (3, True)
    assert application.fake.stats()["calls"] == 4
    rejected = await application.enqueue(document="")
    await application.ended(rejected, JobState.DEAD)
    await application.ended(f"{rejected}.f1", JobState.SUCCEEDED)
    up.terminate()
    assert await application.end(up) == 0
    assert f"job {rejected} is dead: the document is empty" in application.said()


async def test_a_module_that_is_missing_is_named(application: Application) -> None:
    (application.folder / "team/jobs.py").unlink()
    await application.up()
    await application.enqueue(document="x")
    await application.until(lambda: "there is no module 'team.jobs'" in application.said())
    assert os.getcwd() in application.said()
