"""The time-out that a job brings along."""

from __future__ import annotations

import pytest

from llmqueue.client import JobSpec, new_job
from llmqueue.config import QueueConfig, RegistryEntry
from llmqueue.errors import InvalidJob
from llmqueue.states import ProviderType

ENTRY = RegistryEntry(
    QueueConfig("default/q", "default/q", ProviderType.OPENAI, attempt_seconds=240),
    "abcd",
    (),
    "max",
    1,
)
PAYLOAD = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "hi"}]}


@pytest.mark.parametrize("seconds", [None, 0.5, 240])
def test_a_time_out_within_an_attempt_s_is_kept(seconds: float | None) -> None:
    job = new_job(ENTRY, JobSpec(payload=PAYLOAD, timeout_seconds=seconds))
    assert job.timeout_seconds == seconds


def test_a_time_out_above_an_attempt_s_is_refused() -> None:
    """Q12: a drain would cut the job off, since it waits no longer than an attempt may take."""
    with pytest.raises(InvalidJob, match=r"timeout_seconds: 241 .*attemptSeconds \(240\)"):
        new_job(ENTRY, JobSpec(payload=PAYLOAD, timeout_seconds=241))
