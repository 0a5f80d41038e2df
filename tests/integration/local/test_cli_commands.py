"""The command table against a real store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest
from typer.testing import CliRunner

from llmqueue.client import CHUNK_JOBS
from llmqueue.config import BudgetConfig, Limit, QueueConfig
from llmqueue.outcome import Outcome, Usage
from llmqueue.states import LimitUnit, OutcomeClass, ProviderType
from llmqueue.store import RedisStore, connect
from llmqueue.store.port import ClaimRequest, Settlement
from llmqueue_cli.datadir import DataDir
from llmqueue_cli.main import app
from support.valkey import ValkeyServer

STATES = {"ready", "delayed", "leased", "sent", "succeeded", "dead", "review", "cancelled",
          "expired"}  # fmt: skip
MAX_JOBS = 250
QUEUE = "default/batch"
T = TypeVar("T")


def line(text: str = "hello", **fields: Any) -> str:
    payload = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": text}]}
    return json.dumps({"payload": payload, **fields})


@dataclass
class Answer:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass
class Cli:
    """Runs commands on one store, and does to the store what workers would."""

    url: str
    folder: Path

    def __call__(self, *args: str, stdin: str | None = None, url: str | None = None) -> Answer:
        result = CliRunner().invoke(
            app, args, input=stdin, env={"LLMQUEUE_REDIS_URL": self.url if url is None else url}
        )
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Answer(result.exit_code, result.stdout, result.stderr)

    def ids(self, *lines: str) -> list[str]:
        answer = self("enqueue", "batch", "--file", "-", stdin="\n".join(lines))
        assert answer.code == 0, answer.err
        return answer.out.split()

    def store(self, work: Callable[[RedisStore], Awaitable[T]]) -> T:
        async def main() -> T:
            store = await connect(self.url)
            try:
                return await work(store)
            finally:
                await store.close()

        return asyncio.run(main())

    def settle_one(self, outcome: Outcome, *, cost_nano_usd: int | None = None) -> str:
        """Claim the next job, send it, settle it; returns its id."""

        async def work(store: RedisStore) -> str:
            while not (reply := await store.claim(ClaimRequest(QUEUE, "w:1", 1))).grants:
                assert reply.wait_seconds < 1, f"nothing to claim: {reply.reason}"
                await asyncio.sleep(reply.wait_seconds)
            (grant,) = reply.grants
            (sent,) = await store.mark_sent(QUEUE, [(grant.id, grant.fence)], credential="")
            assert sent.ok
            await store.settle(
                QUEUE,
                [
                    Settlement(
                        grant.id, grant.fence, outcome, entry={"model": "m"},
                        cost_nano_usd=cost_nano_usd,
                    )
                ],
            )  # fmt: skip
            return grant.id

        return self.store(work)


@pytest.fixture(scope="module")
def server() -> Iterator[ValkeyServer]:
    server = ValkeyServer(unix=True)
    asyncio.run(server.start())
    yield server
    asyncio.run(server.__aexit__())


@pytest.fixture
def cli(server: ValkeyServer, tmp_path: Path) -> Cli:
    cli = Cli(server.url, tmp_path)

    async def configure(store: RedisStore) -> None:
        await store._redis.client.flushall()
        await store.configure(
            BudgetConfig(QUEUE, (Limit(LimitUnit.REQUESTS, 6000), Limit(LimitUnit.TOKENS, 50_000))),
            [QueueConfig(QUEUE, QUEUE, ProviderType.OPENAI_COMPATIBLE, max_jobs=MAX_JOBS)],
        )

    cli.store(configure)
    return cli


# ---------------------------------------------------------------- enqueue


def test_enqueue_prints_one_id_a_line_in_order(cli: Cli) -> None:
    ids = cli.ids(line("a"), "", line("b", priority=9, tenant="t", feature="f"), line("c"))
    assert len(set(ids)) == 3
    second = cli("job", ids[1], "--json").json
    assert (second["priority"], second["tenant"], second["feature"]) == (9, "t", "f")
    assert second["payload"]["messages"][0]["content"] == "b"


def test_enqueue_reads_a_file(cli: Cli) -> None:
    path = cli.folder / "jobs.jsonl"
    path.write_text(line("ümläut \u2028 inside") + "\n" + line() + "\n", encoding="utf-8-sig")
    answer = cli("enqueue", "default/batch", "--file", str(path))
    assert answer.code == 0
    assert len(answer.out.split()) == 2
    assert answer.err == "", "no bar where stderr is no terminal"


BAD = [
    pytest.param("{", "Invalid JSON", id="no JSON"),
    pytest.param("[]", "object", id="no object"),
    pytest.param('{"priority": 3}', "either payload or handler", id="no payload"),
    pytest.param(line(priority=11), "priority: Input should be less", id="priority"),
    pytest.param(line(colour="red"), "colour: Extra inputs", id="unknown field"),
    pytest.param(line(delay_seconds=-1), "delay_seconds", id="delay"),
    pytest.param('{"payload": {"model": "m"}}', "messages", id="provider's own rule"),
    pytest.param(line("x" * 300_000), "at most 262144", id="too many bytes"),
    pytest.param(
        json.dumps({"payload": {"model": "m", "max_tokens": 60_000,
                                "messages": [{"role": "user", "content": "x"}]}}),
        "it could never run", id="above a limit",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("bad", "reason"), BAD)
def test_a_bad_line_is_named_and_nothing_is_stored(cli: Cli, bad: str, reason: str) -> None:
    path = cli.folder / "jobs.jsonl"
    path.write_text(f"{line()}\n\n{bad}\n{line()}\n")
    answer = cli("enqueue", "batch", "--file", str(path))
    assert (answer.code, answer.out) == (2, "")
    assert f"{path}:3: " in answer.err
    assert reason in answer.err
    assert cli("queue", "batch", "--json").json["states"]["ready"] == 0


def test_all_bad_lines_are_named_up_to_a_page(cli: Cli) -> None:
    answer = cli("enqueue", "batch", "--file", "-", stdin="\n".join(["{"] * 30))
    assert answer.code == 2
    assert answer.err.count("stdin:") == 20
    assert "and 10 more" in answer.err


def test_a_missing_file_is_named(cli: Cli) -> None:
    answer = cli("enqueue", "batch", "--file", str(cli.folder / "none"))
    assert answer.code == 2
    assert "none: cannot be read: No such file" in answer.err


def test_an_idempotency_key_leads_to_the_same_job(cli: Cli) -> None:
    first = cli.ids(line(idempotency_key="k"))
    assert cli.ids(line(idempotency_key="k")) == first
    answer = cli("enqueue", "batch", "-f", "-", stdin=line("other", idempotency_key="k"))
    assert answer.code == 2
    assert "stdin:1: the idempotency key" in answer.err


def test_a_full_queue_says_how_many_were_stored(cli: Cli) -> None:
    answer = cli("enqueue", "batch", "-f", "-", stdin="\n".join(line() for _ in range(300)))
    assert answer.code == 5
    stored = MAX_JOBS - MAX_JOBS % CHUNK_JOBS
    assert f"{stored} of 300 jobs were stored" in answer.err
    assert len(answer.out.split()) == stored


@pytest.mark.parametrize("command", [["enqueue", "nope", "-f", "-"], ["queue", "nope"],
                                     ["jobs", "nope"], ["suspend", "nope"], ["tenants", "nope"], ["resume", "x/nope"],
                                     ["review", "list", "nope"]])  # fmt: skip
def test_an_unknown_queue_is_named_with_those_that_exist(cli: Cli, command: list[str]) -> None:
    answer = cli(*command, stdin=line())
    assert answer.code == 4
    assert "nope" in answer.err
    assert QUEUE in answer.err


# ---------------------------------------------------------------- handlers, batches


def test_a_handler_s_call_is_enqueued(cli: Cli) -> None:
    async def with_handlers(store: RedisStore) -> None:
        await store.configure(
            BudgetConfig(QUEUE, (Limit(LimitUnit.REQUESTS, 6000),)),
            [QueueConfig(QUEUE, QUEUE, ProviderType.OPENAI_COMPATIBLE, handlers=True)],
        )

    refused = cli("enqueue", "batch", "--handler", "summarise")
    assert (refused.code, refused.out) == (2, "")
    assert (
        "--handler: handler: the workers of queue 'default/batch' have no handlers" in refused.err
    )
    cli.store(with_handlers)
    answer = cli("enqueue", "batch", "--handler", "summarise", "--args", '{"text": "é"}')
    assert answer.code == 0, answer.err
    job = cli("job", answer.out.strip(), "--json").json
    assert (job["handler"], job["payload"]) == ("summarise", {"text": "é"})
    assert "Handler:   summarise" in cli("job", answer.out.strip()).out
    for args in ("{", "[]"):
        assert cli("enqueue", "batch", "--handler", "h", "--args", args).code == 2


@pytest.mark.parametrize(
    "options", [[], ["-f", "-", "--handler", "h"], ["-f", "-", "--then", "{}"]]
)
def test_options_that_contradict_are_refused(cli: Cli, options: list[str]) -> None:
    assert cli("enqueue", "batch", *options, stdin=line()).code == 2
    assert cli("queue", "batch", "--json").json["states"]["ready"] == 0


def test_a_batch_is_enqueued_shown_and_ended(cli: Cli) -> None:
    lines = "\n".join(line(str(n)) for n in range(3))
    answer = cli("enqueue", "batch", "-f", "-", "--batch", "--name", "nightly",
                 "--finally", line("tidy"), stdin=lines)  # fmt: skip
    assert answer.code == 0, answer.err
    batch_id = answer.out.strip()
    view = cli("batch", batch_id, "--json").json
    assert (view["state"], view["total"], view["name"]) == ("running", 3, "nightly")
    assert [one["id"] for one in cli("batches", "batch", "--json").json] == [batch_id]
    assert "nightly" in cli("batches", "batch").out
    ids = cli("batch", batch_id, "--jobs").out.split()
    assert cli("job", ids[0], "--json").json["batch"] == batch_id
    assert cli.settle_one(success()) == ids[0]
    shown = cli("batch", batch_id).out
    assert "3: 2 pending, 1 succeeded, 0 failed (0 allowed)" in shown
    cancelled = cli("batch", batch_id, "--cancel", "--json").json
    assert (cancelled["state"], cancelled["failed"]) == ("failed", 2)
    assert cli("batches", "batch", "--json").json == []
    assert cli("queue", "batch", "--json").json["states"]["ready"] == 1, "what follows it"
    assert cli("batch", "none").code == 4


def test_a_batch_that_broke_off_is_seen_and_gone_on_with(cli: Cli) -> None:
    lines = "\n".join(line(str(n)) for n in range(300))
    answer = cli("enqueue", "batch", "-f", "-", "--batch", stdin=lines)
    assert answer.code == 5
    batch_id = answer.out.strip()
    assert f"batch {batch_id} is open" in answer.err
    assert "open: its producer has not said that it is complete" in cli("batch", batch_id).out

    async def more(store: RedisStore) -> None:
        await store.configure(
            BudgetConfig(QUEUE, (Limit(LimitUnit.REQUESTS, 6000),)),
            [QueueConfig(QUEUE, QUEUE, ProviderType.OPENAI_COMPATIBLE, max_jobs=1000)],
        )

    cli.store(more)
    again = cli("enqueue", "batch", "-f", "-", "--batch", "--batch-id", batch_id, stdin=lines)
    assert (again.code, again.out.strip()) == (0, batch_id)
    view = cli("batch", batch_id, "--json").json
    assert (view["total"], view["state"]) == (300, "running")


def test_a_wrong_follower_is_named(cli: Cli) -> None:
    answer = cli("enqueue", "batch", "-f", "-", "--batch", "--then", "{}", stdin=line())
    assert answer.code == 2
    assert "--then: job: either payload or handler" in answer.err


# ---------------------------------------------------------------- waiting


def test_wait_tells_how_jobs_ended(cli: Cli) -> None:
    ids = cli.ids(line(idempotency_key="a"), line(idempotency_key="b"))
    cli.settle_one(success())
    cli.settle_one(Outcome(OutcomeClass.PERMANENT, status=400, message="no such model"))
    again = "\n".join(line(idempotency_key=key) for key in "ab")
    answer = cli("enqueue", "batch", "-f", "-", "--wait", stdin=again)
    assert (answer.code, answer.out.split()) == (1, ids)
    assert "1 succeeded, 1 dead" in answer.err


def test_wait_succeeds_when_all_do(cli: Cli) -> None:
    cli.ids(line(idempotency_key="a"))
    cli.settle_one(success())
    again = cli("enqueue", "batch", "-f", "-", "--wait", stdin=line(idempotency_key="a"))
    assert (again.code, again.err) == (0, "")


def success() -> Outcome:
    return Outcome(
        OutcomeClass.SUCCESS, status=200, usage=Usage(10, 5), result=b'{"choices": [1]}', model="m"
    )


# ---------------------------------------------------------------- reading


def test_job_has_the_fixed_words_at_every_stage(cli: Cli) -> None:
    (job_id,) = cli.ids(line())
    waiting = cli("job", job_id, "--json").json
    assert waiting["state"] == "ready"
    assert (waiting["attempts"], waiting["result"], waiting["error"]) == ([], None, None)
    assert waiting["cost_usd"] is None
    assert cli.settle_one(success(), cost_nano_usd=1_500_000) == job_id
    done = cli("job", job_id, "--json").json
    assert (done["id"], done["state"]) == (job_id, "succeeded")
    assert done["result"] == {"choices": [1]}
    assert len(done["attempts"]) == 1
    assert done["cost_usd"] == "0.0015"
    assert done["error"] is None


def test_a_dead_job_says_why(cli: Cli) -> None:
    (job_id,) = cli.ids(line())
    cli.settle_one(Outcome(OutcomeClass.PERMANENT, status=400, message="no such [red]model"))
    dead = cli("job", job_id, "--json").json
    assert dead["state"] == "dead"
    assert dead["error"]["class"] == "PERMANENT"
    assert "no such [red]model" in dead["error"]["message"]
    told = cli("job", job_id).out
    assert "Error:     no such [red]model" in told
    assert "Attempt 1: PERMANENT, status 400" in told


def test_queue_has_the_fixed_words(cli: Cli) -> None:
    cli.ids(line(), line(delay_seconds=60))
    cli.settle_one(success())
    status = cli("queue", "batch", "--json").json
    assert set(status["states"]) >= STATES
    assert {k: v for k, v in status["states"].items() if v} == {"delayed": 1, "succeeded": 1}
    assert status["in_flight"] == 0
    assert set(status["workers"]) >= {"desired", "actual"}
    assert {"bound_by", "effective_rpm", "eta_seconds"} <= set(status)


def test_the_plan_shows_up(cli: Cli) -> None:
    async def work(store: RedisStore) -> None:
        await store.write_plan(
            QUEUE,
            {"desired": 3, "actual": 2, "bound_by": "RequestsPerMinute", "effective_rpm": 59.02,
             "eta_seconds": 75},
        )  # fmt: skip

    cli.store(work)
    status = cli("queue", "batch", "--json").json
    assert (status["workers"]["desired"], status["workers"]["actual"]) == (3, 2)
    assert (status["bound_by"], status["effective_rpm"]) == ("RequestsPerMinute", 59.02)
    assert status["eta_seconds"] == 75
    text = cli("queue", "batch").out
    assert "2 of 3 wanted" in text
    assert "1 min 15 s" in text


def test_queues_lists_all(cli: Cli) -> None:
    cli.ids(line())
    (row,) = cli("queues", "--json").json
    assert (row["queue"], row["states"]["ready"]) == (QUEUE, 1)
    assert QUEUE in cli("queues").out


def test_jobs_filters_by_state_and_counts(cli: Cli) -> None:
    ids = cli.ids(*(line(str(n)) for n in range(4)))
    done = cli.settle_one(success())
    assert done == ids[0]
    assert [row["id"] for row in cli("jobs", "batch", "--json").json] == [*ids[1:], done]
    only = cli("jobs", "batch", "--state", "succeeded", "--json").json
    assert [row["id"] for row in only] == [done]
    assert len(cli("jobs", "batch", "--limit", "2", "--json").json) == 2
    assert ids[3] in cli("jobs", "batch").out


def test_why_explains(cli: Cli) -> None:
    ids = cli.ids(line(), line())
    answer = cli("why", ids[1], "--json").json
    assert (answer["state"], answer["position"]) == ("ready", 2)
    cli("suspend", "batch")
    assert "the queue is suspended" in cli("why", ids[0]).out


def test_review_lists_unknown_outcomes(cli: Cli) -> None:
    cli.ids(line())
    job_id = cli.settle_one(Outcome(OutcomeClass.UNKNOWN, message="read timeout"))
    (row,) = cli("review", "list", "--json").json
    assert (row["id"], row["state"]) == (job_id, "review")
    assert cli("review", "list", "batch", "--json").json == [row]
    assert job_id in cli("review", "list").out


@pytest.mark.parametrize("command", ["job", "why", "cancel"])
def test_an_unknown_job_is_told_apart(cli: Cli, command: str) -> None:
    known = cli.ids(line())[0]
    for missing in (known[:4] + "0" * 18, "nonsense"):
        answer = cli(command, missing)
        assert (answer.code, answer.out) == (4, ""), answer
        assert missing in answer.err
        assert "Traceback" not in answer.err


# ---------------------------------------------------------------- steering


def test_cancel_goes_on_after_a_bad_id(cli: Cli) -> None:
    ids = cli.ids(line(), line())
    answer = cli("cancel", ids[0], "nonsense", ids[1])
    assert answer.code == 4
    assert answer.out.splitlines() == [f"{ids[0]} cancelled", f"{ids[1]} cancelled"]
    assert cli("queue", "batch", "--json").json["states"]["cancelled"] == 2


def test_who_waits(cli: Cli) -> None:
    """Tenants with most waiting jobs first; a queue without any has none."""
    assert cli("tenants", "batch", "--json").json == []
    cli.ids(line(tenant="a"), *[line(tenant="b")] * 2, line())
    rows = cli("tenants", "batch", "--json").json
    assert rows[0] == {"tenant": "b", "waiting": 2, "in_flight": 0, "parked_seconds": 0.0}
    assert [row["tenant"] for row in rows] == ["b", "", "a"]
    shown = cli("tenants", "batch", "--limit", "2").out.splitlines()
    assert len(shown) == 3
    assert shown[2].split() == ["–", "1", "0", "–"]


def test_suspend_and_unsuspend(cli: Cli) -> None:
    cli.ids(line())
    assert cli("suspend", "batch").out == "default/batch suspended\n"
    assert cli("queue", "batch", "--json").json["suspended"] is True
    assert "Suspended" in cli("queue", "batch").out
    assert cli("unsuspend", "batch").code == 0
    assert cli.settle_one(success())


def test_resume_lifts_a_pause(cli: Cli) -> None:
    assert cli("resume", "batch").out == "default/batch had nothing to resume\n"
    cli.ids(line())
    cli.settle_one(Outcome(OutcomeClass.AUTH, status=401, message="bad key"))
    (pause,) = cli("queue", "batch", "--json").json["paused"]
    assert pause["kind"] == "AUTH"
    assert cli("resume", "batch").out == "default/batch resumed: 1 lifted\n"


# ---------------------------------------------------------------- which store


def test_a_store_that_is_away_is_one_sentence_without_a_secret(cli: Cli) -> None:
    answer = cli("queues", url="redis://:sk-secret@127.0.0.1:1/0")
    assert (answer.code, answer.out) == (3, "")
    assert answer.err.startswith("llmqueue: Redis cannot be reached")
    assert "sk-secret" not in answer.err
    assert len(answer.err.splitlines()) == 1


def test_a_url_that_is_none_is_wrong_use(cli: Cli) -> None:
    answer = cli("queues", url="http://nowhere")
    assert answer.code == 2
    assert "is not a Redis URL" in answer.err


def test_the_data_folder_leads_to_the_store(cli: Cli) -> None:
    data = DataDir(cli.folder / "data")
    missing = cli("queues", "--data-dir", str(data.folder), url="")
    assert missing.code == 3
    assert "no `llmqueue up` runs on" in missing.err
    data.create()
    data.write_note(redis_url=cli.url)
    assert cli("queues", "--data-dir", str(data.folder), url="").code == 0
