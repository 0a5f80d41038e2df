"""What a producer may say of a job, and what is answered to nonsense."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from llmqueue.client import HandlerCall, JobSpec, new_batch_job, new_job, parse_spec
from llmqueue.client.admission import HANDLER_INPUT_TOKENS
from llmqueue.client.spec import spec_of
from llmqueue.config import Limit, QueueConfig, RegistryEntry
from llmqueue.errors import InvalidJob, JobTooLarge, LimitExceeded
from llmqueue.states import LimitUnit, ProviderType

CONFIG = QueueConfig("default/q", "default/q", ProviderType.OPENAI, handlers=True)
ENTRY = RegistryEntry(CONFIG, "abcd", (Limit(LimitUnit.TOKENS, 50_000),), "max", 1)
ANTHROPIC = RegistryEntry(
    replace(CONFIG, provider=ProviderType.ANTHROPIC), "abcd", ENTRY.limits, "sum", 1
)
MESSAGES = [{"role": "user", "content": "hi"}]
FREE = {"model": "m", "messages": MESSAGES}
BOUND = {**FREE, "max_tokens": 500}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{}", "either payload or handler is needed, and not both"),
        ('{"payload": {}, "handler": "h"}', "either payload or handler"),
        ('{"payload": {}, "args": {}}', "args are those of a handler"),
        ('{"handler": ""}', "handler: "),
        ('{"handler": "h", "args": [1]}', "args: "),
        ('{"payload": {}, "not_before": "2026-01-01T00:00:00"}', "not_before: .*timezone"),
        ('{"payload": {}, "not_before": "tomorrow"}', "not_before: "),
        (
            '{"payload": {}, "delay_seconds": 1, "not_before": "2026-01-01T00:00:00Z"}',
            "delay_seconds and not_before say the same",
        ),
        ('{"payload": {}, "backoff_seconds": []}', "backoff_seconds: "),
        ('{"payload": {}, "backoff_seconds": [1, -1]}', r"backoff_seconds\.1: "),
        ('{"payload": {}, "estimated_output_tokens": 0}', "estimated_output_tokens: "),
        ('{"payload": {}, "correlation_id": "a\\nb"}', "correlation_id: "),
        ('{"payload": {}, "max_cost_usd": 1}', "max_cost_usd: Extra inputs"),
    ],
)
def test_a_wrong_line_is_answered_with_the_field(line: str, words: str) -> None:
    with pytest.raises(InvalidJob, match=words):
        parse_spec(line)


def test_a_line_of_everything() -> None:
    spec = parse_spec(
        '{"handler": "h", "args": {"a": 1}, "priority": 10, "not_before": "2026-01-01T00:00:00+01:00",'
        ' "backoff_seconds": [1, 2.5], "estimated_input_tokens": 5, "correlation_id": "c"}'
    )
    assert spec.not_before is not None
    assert spec.not_before.astimezone(UTC) == datetime(2025, 12, 31, 23, tzinfo=UTC)
    job = new_job(ENTRY, spec)
    assert (job.handler, job.payload, job.delay_seconds) == ("h", b'{"a":1}', 0)
    assert (job.backoff_seconds, job.correlation_id) == ((1, 2.5), "c")


@pytest.mark.parametrize(
    ("job", "options", "expected"),
    [
        (BOUND, {"priority": 9}, JobSpec(payload=BOUND, priority=9)),
        (HandlerCall("h", {"a": 1}), {}, JobSpec(handler="h", args={"a": 1})),
        (JobSpec(payload=BOUND, tenant="t"), {}, JobSpec(payload=BOUND, tenant="t")),
        (
            JobSpec(payload=BOUND, tenant="t", priority=3),
            {"priority": 7},
            JobSpec(payload=BOUND, tenant="t", priority=7),
        ),
    ],
    ids=["payload", "handler call", "spec", "spec with options"],
)
def test_each_form_of_a_job(job: Any, options: Any, expected: JobSpec) -> None:
    assert spec_of(job, options) == expected


@pytest.mark.parametrize("options", [{"priority": 11}, {"colour": "red"}])
def test_wrong_options_are_named(options: Any) -> None:
    with pytest.raises(InvalidJob, match=next(iter(options))):
        spec_of(BOUND, options)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (datetime.now(UTC), "not JSON serializable"),
        (float("nan"), "not JSON"),
        ({1, 2}, "is not JSON"),
    ],
)
def test_content_that_is_not_json_is_refused(value: object, words: str) -> None:
    """Never pickles, and no NaN that only Python reads."""
    with pytest.raises(InvalidJob, match=f"args: .*{words}"):
        new_job(ENTRY, JobSpec(handler="h", args={"a": value}))


def test_arguments_have_the_bound_of_payloads() -> None:
    """Q46"""
    with pytest.raises(JobTooLarge, match=r"args: .* at most 262144"):
        new_job(ENTRY, JobSpec(handler="h", args={"a": "x" * 262_144}))


# ---------------------------------------------------------------- estimates


@pytest.mark.parametrize(
    ("entry", "payload", "asked", "reserved"),
    [
        pytest.param(ENTRY, FREE, None, 4096, id="the queue's default"),
        pytest.param(ENTRY, FREE, 300, 300, id="the bound of a payload without one"),
        pytest.param(ENTRY, FREE, 9000, 9000, id="also above the default"),
        pytest.param(ENTRY, {**FREE, "n": 3}, 300, 900, id="of each choice"),
        pytest.param(
            ENTRY, BOUND, 300, 500, id="where the provider counts the payload's own bound"
        ),
        pytest.param(ANTHROPIC, BOUND, 300, 300, id="where it counts what was used"),
        pytest.param(ANTHROPIC, FREE, 300, 300, id="the bound, there too"),
    ],
)
def test_an_estimate_of_the_output(
    entry: RegistryEntry, payload: dict[str, Any], asked: int | None, reserved: int
) -> None:
    """The call is never allowed more than what the provider will have counted."""
    job = new_job(entry, JobSpec(payload=payload, estimated_output_tokens=asked))
    assert job.charge.output_tokens == reserved


def test_an_estimate_above_the_payload_s_bound_is_refused() -> None:
    with pytest.raises(InvalidJob, match=r"estimated_output_tokens: 501 .* \(500\)"):
        new_job(ENTRY, JobSpec(payload=BOUND, estimated_output_tokens=501))


@pytest.mark.parametrize(("given", "reserved"), [(0, 0), (7777, 7777)])
def test_an_estimate_of_the_input_replaces_the_guess(given: int, reserved: int) -> None:
    guessed = new_job(ENTRY, JobSpec(payload=BOUND))
    job = new_job(ENTRY, JobSpec(payload=BOUND, estimated_input_tokens=given))
    assert job.charge.input_tokens == reserved
    assert job.charge.worst_nano_usd == guessed.charge.worst_nano_usd


def test_an_estimate_above_a_limit_could_never_run() -> None:
    with pytest.raises(LimitExceeded, match="payload: reserves 60000 tokens"):
        new_job(ENTRY, JobSpec(payload=BOUND, estimated_input_tokens=60_000))
    with pytest.raises(LimitExceeded, match="handler: reserves 60000 tokens"):
        new_job(ENTRY, JobSpec(handler="h", estimated_output_tokens=60_000))


def test_a_handler_job_s_charge() -> None:
    plain = new_job(ENTRY, JobSpec(handler="h")).charge
    assert (plain.input_tokens, plain.output_tokens) == (HANDLER_INPUT_TOKENS, 4096)
    assert plain.worst_nano_usd is None
    said = JobSpec(handler="h", estimated_input_tokens=5, estimated_output_tokens=6)
    assert new_job(ENTRY, said).charge.output_tokens == 6


# ---------------------------------------------------------------- ids


def test_a_batch_s_jobs_are_known_by_key_or_place() -> None:
    def made(place: int, batch: str = "abcd-1", **fields: Any) -> str:
        return new_batch_job(ENTRY, JobSpec(payload=BOUND, **fields), batch=batch, place=place).id

    assert made(0) == made(0)
    assert len({made(0), made(1), made(0, "abcd-2"), made(0, tenant="t")}) == 4
    assert made(0, idempotency_key="k") == made(5, idempotency_key="k")
