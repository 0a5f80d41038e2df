"""What the demo is made of."""

from __future__ import annotations

import pytest

from llmqueue.client import new_job
from llmqueue.config import RegistryEntry
from llmqueue.errors import UsageError
from llmqueue.spec import load_manifests, queue_config, queue_id
from llmqueue.states import ProviderType
from llmqueue_cli.local.demo import material
from llmqueue_cli.local.demo.material import example, jobs, traffic
from llmqueue_cli.local.demo.stage import PARTS


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.queue)
def test_every_job_is_valid_for_its_queue(part: material.Any) -> None:
    (queue,) = load_manifests([example(part.file)])
    assert queue_id(queue) == part.queue
    assert queue.spec.limits.requests_per_minute == part.limit
    entry = RegistryEntry(queue_config(queue), "abcd", (), "max", 1)
    made = [new_job(entry, spec) for spec in jobs(part.kind, part.jobs)]
    assert len({job.id for job in made}) == part.jobs


def test_there_are_more_than_300_jobs_and_the_excerpt_is_small_enough() -> None:
    assert sum(part.jobs for part in PARTS) > 300
    rows = traffic()
    assert sum(part.jobs for part in PARTS) <= len(rows) <= 2000
    assert "Splitwise" in (example(material.TRACE).parent / "README.md").read_text()


def test_both_queues_get_other_requests_of_the_trace() -> None:
    kinds = (ProviderType.OPENAI, ProviderType.ANTHROPIC)
    tokens = [[spec.payload["max_tokens"] for spec in jobs(kind, 5)] for kind in kinds]
    assert tokens[0] + tokens[1] == [
        generated for _, generated in traffic()[:10:2] + traffic()[1:10:2]
    ]


def test_an_incomplete_installation_is_named() -> None:
    with pytest.raises(UsageError, match="examples/none is missing from this installation"):
        example("none")
