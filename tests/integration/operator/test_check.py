"""The check of an installation, against a real Valkey and a real page of metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from llmqueue.probes import ProbeServer
from llmqueue_operator.check import main
from llmqueue_operator.exporter import registry
from llmqueue_operator.metrics import Metrics
from support.valkey import ValkeyServer, free_port

Files = dict[str, str]
Check = Callable[[dict[str, Files], str], tuple[int, list[str]]]


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def operator(metrics: Metrics) -> Iterator[str]:
    """host:port of a replica."""
    server = ProbeServer({}, registry(metrics), port=0, host="127.0.0.1")
    server.start()
    yield f"127.0.0.1:{server.port}"
    server.stop()


@pytest.fixture
def check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Check:
    """Runs it on these connections (name → file → content); returns its exit code and lines."""

    def run(connections: dict[str, Files], operator: str) -> tuple[int, list[str]]:
        for name, files in connections.items():
            (tmp_path / name).mkdir()
            for file, content in files.items():
                (tmp_path / name / file).write_text(content)
        code = main([f"--operator={operator}", f"--connections={tmp_path}", "--seconds=0"])
        return code, capsys.readouterr().out.splitlines()

    return run


def test_all_is_well(check: Check, metrics: Metrics, operator: str, valkey_url: str) -> None:
    metrics.leading = True
    code, lines = check({"default": {"url": f"{valkey_url}\n"}, "..data": {}}, operator)
    assert lines == [
        "ok    Redis connection default can be used",
        "ok    an operator leads; replicas that answer: 1",
    ]
    assert code == 0


def test_nobody_leads(check: Check, operator: str, valkey_url: str) -> None:
    code, lines = check({"default": {"url": valkey_url}}, operator)
    assert lines[1:] == ["WRONG operator: none of 1 replicas leads: see the operator's log"]
    assert code == 1


def test_nobody_answers(check: Check, valkey_url: str) -> None:
    port = free_port()
    code, lines = check({"default": {"url": valkey_url}}, f"127.0.0.1:{port}")
    assert lines[1:] == [f"WRONG operator: no replica answers at port {port} of 127.0.0.1"]
    assert code == 1
    code, lines = check({}, "nowhere.invalid:8080")
    assert lines[1].startswith("WRONG operator: no replica is ready: nowhere.invalid: ")


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "its Secret has no key 'url', or an empty one"),
        ({"url": "nonsense"}, "'***' is not a Redis URL: it must begin with one of redis://"),
        ({"url": "redis://:secret@127.0.0.1:1/0"}, "Redis cannot be reached: "),
    ],
    ids=["no key", "no URL", "nobody there"],
)
def test_a_connection_that_cannot_be_used(
    check: Check, operator: str, files: Files, said: str
) -> None:
    code, lines = check({"other": files}, operator)
    assert lines[0].startswith(f"WRONG Redis connection other: {said}")
    assert "secret" not in lines[0]
    assert code == 1


def test_no_connection_at_all(check: Check, operator: str, tmp_path: Path) -> None:
    code, lines = check({}, operator)
    assert lines[0] == f"WRONG Redis: no connection below {tmp_path}"
    assert code == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"maxmemory-policy": "allkeys-lru"}, "WRONG Redis connection default: maxmemory-policy"),
        ({"appendonly": "no"}, "ok    Redis connection default can be used"),
    ],
    ids=["may evict", "no append-only file"],
)
async def test_how_a_server_is_set_up(
    check: Check, operator: str, options: Files, said: str
) -> None:
    async with ValkeyServer(options=options) as server:
        _, lines = await asyncio.to_thread(check, {"default": {"url": server.url}}, operator)
    assert lines[0].startswith(said)
    notes = [line for line in lines if line.startswith("note")]
    assert len(notes) == (1 if "appendonly" in options else 0)


@pytest.mark.parametrize(
    ("more", "noted"),
    [
        ({}, True),
        ({"worker-secret-name": "valkey-url"}, False),
        ({"worker-url": "redis://valkey:6379/0"}, False),
    ],
    ids=["nothing for workers", "a Secret", "another URL"],
)
def test_a_password_is_not_given_to_workers(
    check: Check, operator: str, valkey_url: str, more: Files, noted: bool
) -> None:
    """The server's default user has none and takes any."""
    url = valkey_url.replace("://", "://default:hush@")
    _, lines = check({"default": {"url": url, **more}}, operator)
    assert lines[0] == "ok    Redis connection default can be used"
    assert any("workerSecretRef" in line for line in lines) == noted
